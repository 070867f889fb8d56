"""Hard limits: every violation with its sum, who holds what, and what would pass now."""

from dataclasses import dataclass

from webhook.core.amount import Limit, Units, Unlimited, exceeds, format_limit, tell_gpus
from webhook.core.ledger import Book
from webhook.core.names import ANY_MODEL, GpuModel, User
from webhook.core.policy import Team
from webhook.core.reason import Code, Reason
from webhook.core.tier import Tier

_GUARANTEED, _PREEMPTIBLE = Tier.GUARANTEED, Tier.PREEMPTIBLE  # a look at an enum's member costs 0.1 us


@dataclass(frozen=True, slots=True)
class Bar:
    """One limit that a request is held against; `taken` is what counts towards it already."""

    code: Code
    subject: str
    limit: Limit
    taken: Units

    def breaks(self, gpus: Units) -> bool:
        """Tell whether so many GPU units more would be too many."""
        return exceeds(self.taken + gpus, self.limit)

    def violation(self, gpus: Units, book: Book) -> Reason:
        """Say that it is broken, with its sum."""
        room = 0 if isinstance(self.limit, Unlimited) else self.limit - self.taken
        return _violation(self, gpus, room, book)


def violations(gpus: Units, team: Team, book: Book, *, user: User | None) -> tuple[Reason, ...]:
    """Hold a request of so many GPU units against the limits per pod, user and team; report every one it breaks."""
    if not (
        exceeds(gpus, team.per_pod)
        or exceeds(book.total + gpus, team.gpus.limit)
        or (user is not None and exceeds(book.user(user) + gpus, team.per_user))
    ):
        return ()
    held = bars(team, book, user=user)
    room = min(bar.limit - bar.taken for bar in held if not isinstance(bar.limit, Unlimited))
    return tuple(_violation(bar, gpus, room, book) for bar in held if bar.breaks(gpus))


def bars(team: Team, book: Book, *, user: User | None) -> tuple[Bar, ...]:
    """List the limits per pod, team and user; the last only where somebody says who the user is."""
    held = (
        Bar(Code.POD_LIMIT_EXCEEDED, f"one pod of team {team.name}", team.per_pod, 0),
        Bar(Code.TEAM_LIMIT_EXCEEDED, f"team {team.name}", team.gpus.limit, book.total),
    )
    if user is None:
        return held
    return (
        *held,
        Bar(Code.USER_LIMIT_EXCEEDED, f"user {user} in team {team.name}", team.per_user, book.user(user)),
    )


def model_bars(team: Team, book: Book) -> tuple[Bar, ...]:
    """List the team's limits per GPU model."""
    return tuple(_model_bar(team, book, model, share.limit) for model, share in team.models.items())


def model_violation(gpus: Units, team: Team, book: Book, model: GpuModel) -> Reason | None:
    """Hold a request against the team's limit for one GPU model; one that may end on any, against each of them."""
    share = team.models.get(model)
    if share is None and model != ANY_MODEL:
        return None
    held = model_bars(team, book) if share is None else (_model_bar(team, book, model, share.limit),)
    bar = next((bar for bar in held if bar.breaks(gpus)), None)
    if bar is None:
        return None
    room = min(each.limit - each.taken for each in held if not isinstance(each.limit, Unlimited))
    return _violation(bar, gpus, room, book)


def guaranteed_violation(gpus: Units, team: Team, book: Book, model: GpuModel | None) -> Reason:
    """Say why a pod that asked never to borrow cannot have its GPUs from the guaranteed share."""
    subject, share, taken = f"team {team.name}, guaranteed share", team.gpus.guaranteed, book.guaranteed
    if model in team.models and model is not None and taken + gpus <= share:
        subject, share, taken = f"{subject} of {model}", team.models[model].guaranteed, book.guaranteed_model(model)
    return _violation(Bar(Code.GUARANTEED_SHARE_USED, subject, share, taken), gpus, share - taken, book)


def has_guaranteed_room(gpus: Units, team: Team, book: Book, model: GpuModel | None) -> bool:
    """Tell whether the request stays inside the guaranteed share, of the team and of the model if it has one."""
    if book.guaranteed + gpus > team.gpus.guaranteed:
        return False
    share = team.models.get(model) if model is not None else None
    return share is None or model is None or book.guaranteed_model(model) + gpus <= share.guaranteed


def tier_for(gpus: Units, team: Team, book: Book, model: GpuModel | None, *, asked: Tier | None) -> Tier:
    """Tell on what terms a pod would run: guaranteed while the share has room, unless it would rather borrow."""
    is_guaranteed = asked is not _PREEMPTIBLE and has_guaranteed_room(gpus, team, book, model)
    return _GUARANTEED if is_guaranteed else _PREEMPTIBLE


def _model_bar(team: Team, book: Book, model: GpuModel, limit: Limit) -> Bar:
    return Bar(Code.MODEL_LIMIT_EXCEEDED, f"team {team.name} on {model}", limit, book.model(model))


def _violation(bar: Bar, gpus: Units, room: Units, book: Book) -> Reason:
    asked = f"{bar.subject}: requested {tell_gpus(gpus)}, limit {format_limit(bar.limit)}"
    if bar.code is Code.POD_LIMIT_EXCEEDED:
        return Reason(bar.code, f"{asked}; {_advice(room)}")
    reserved = f", reserved {tell_gpus(book.reserved)}" if bar.code is Code.TEAM_LIMIT_EXCEEDED else ""
    used = bar.taken - (book.reserved if reserved else 0)
    holders = ", ".join(f"{holder} {tell_gpus(held)}" for holder, held in book.largest_holders())
    held = f"; largest holders: {holders}" if holders else ""
    return Reason(bar.code, f"{asked}, used {tell_gpus(used)}{reserved}{held}; {_advice(room)}")


def _advice(room: Units) -> str:
    if room <= 0:
        return "no request would pass now: wait until a holder ends, or delete one"
    return f"a request of at most {tell_gpus(room)} would pass now"
