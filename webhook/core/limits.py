"""Hard limits: every violation with its sum, who holds what, and what would pass now."""

from dataclasses import dataclass

from webhook.core.amount import Limit, Unlimited, exceeds, format_limit, tell_gpus
from webhook.core.ledger import Book
from webhook.core.names import GpuModel, User
from webhook.core.policy import Team
from webhook.core.reason import Code, Reason


@dataclass(frozen=True, slots=True)
class _Bar:
    """One limit that a request is held against."""

    code: Code
    subject: str
    limit: Limit
    taken: int


def violations(gpus: int, team: Team, book: Book, *, user: User | None) -> tuple[Reason, ...]:
    """Hold a request of so many GPU units against the limits per pod, user and team; report every one it breaks."""
    if not (
        exceeds(gpus, team.per_pod)
        or exceeds(book.total + gpus, team.gpus.limit)
        or (user is not None and exceeds(book.user(user) + gpus, team.per_user))
    ):
        return ()
    bars = [
        _Bar(Code.POD_LIMIT_EXCEEDED, f"one pod of team {team.name}", team.per_pod, 0),
        _Bar(Code.TEAM_LIMIT_EXCEEDED, f"team {team.name}", team.gpus.limit, book.total),
    ]
    if user is not None:
        bars.append(_Bar(Code.USER_LIMIT_EXCEEDED, f"user {user} in team {team.name}", team.per_user, book.user(user)))
    room = min(bar.limit - bar.taken for bar in bars if not isinstance(bar.limit, Unlimited))
    return tuple(_violation(bar, gpus, room, book) for bar in bars if exceeds(bar.taken + gpus, bar.limit))


def model_violation(gpus: int, team: Team, book: Book, model: GpuModel) -> Reason | None:
    """Hold a request against the team's limit for one GPU model."""
    share = team.models.get(model)
    if share is None or not exceeds(book.model(model) + gpus, share.limit):
        return None
    bar = _Bar(Code.MODEL_LIMIT_EXCEEDED, f"team {team.name} on {model}", share.limit, book.model(model))
    room = 0 if isinstance(share.limit, Unlimited) else share.limit - bar.taken
    return _violation(bar, gpus, room, book)


def guaranteed_violation(gpus: int, team: Team, book: Book, model: GpuModel | None) -> Reason:
    """Say why a pod that asked never to borrow cannot have its GPUs from the guaranteed share."""
    subject, share, taken = f"team {team.name}, guaranteed share", team.gpus.guaranteed, book.guaranteed
    if model in team.models and model is not None and taken + gpus <= share:
        subject, share, taken = f"{subject} of {model}", team.models[model].guaranteed, book.guaranteed_model(model)
    return _violation(_Bar(Code.GUARANTEED_SHARE_USED, subject, share, taken), gpus, share - taken, book)


def has_guaranteed_room(gpus: int, team: Team, book: Book, model: GpuModel | None) -> bool:
    """Tell whether the request stays inside the guaranteed share, of the team and of the model if it has one."""
    if book.guaranteed + gpus > team.gpus.guaranteed:
        return False
    share = team.models.get(model) if model is not None else None
    return share is None or model is None or book.guaranteed_model(model) + gpus <= share.guaranteed


def _violation(bar: _Bar, gpus: int, room: int, book: Book) -> Reason:
    asked = f"{bar.subject}: requested {tell_gpus(gpus)}, limit {format_limit(bar.limit)}"
    if bar.code is Code.POD_LIMIT_EXCEEDED:
        return Reason(bar.code, f"{asked}; {_advice(room)}")
    reserved = f", reserved {tell_gpus(book.reserved)}" if bar.code is Code.TEAM_LIMIT_EXCEEDED else ""
    used = bar.taken - (book.reserved if reserved else 0)
    holders = ", ".join(f"{holder} {tell_gpus(held)}" for holder, held in book.largest_holders())
    held = f"; largest holders: {holders}" if holders else ""
    return Reason(bar.code, f"{asked}, used {tell_gpus(used)}{reserved}{held}; {_advice(room)}")


def _advice(room: int) -> str:
    if room <= 0:
        return "no request would pass now: wait until a holder ends, or delete one"
    return f"a request of at most {tell_gpus(room)} would pass now"
