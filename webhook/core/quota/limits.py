"""Hard limits: every violation with its sum, who holds what, and what would pass now.

A new kind of limit is one more `Bar` in `bars` and its comparison in `violations`. Admission, the commit, explanations,
policy replay and the check of whole workloads all read it from here.
"""

from dataclasses import dataclass
from typing import NamedTuple

from webhook.core.model.amount import Limit, Units, Unlimited, exceeds
from webhook.core.model.names import ANY_MODEL, GpuModel, User
from webhook.core.model.pod import Pod, Resident
from webhook.core.model.policy import Team
from webhook.core.model.reason import Code, Reason
from webhook.core.model.tier import Tier
from webhook.core.quota.holders import Holder
from webhook.core.quota.limit_text import HOLDERS, Request, violation_text
from webhook.core.quota.usage import TeamUsage

_GUARANTEED, _PREEMPTIBLE = Tier.GUARANTEED, Tier.PREEMPTIBLE  # a look at an enum's member costs 0.1 us


class Account(NamedTuple):
    """Whom a request is charged to: a team with what it holds, the user where one is known, and the pod that asks."""

    team: Team
    book: TeamUsage
    user: User | None
    pod: Pod | Resident


@dataclass(frozen=True, slots=True)
class Bar:
    """One limit that a request is held against; `taken` is what counts towards it already.

    `user` and `model` say whose limit it is, or for which GPUs, where it is not all of the team's. `per` completes
    "limit" in texts. One `is_per_pod` holds for each pod alone, the others for the sum of all pods.
    """

    code: Code
    subject: str
    limit: Limit
    taken: Units
    user: User | None = None
    model: GpuModel | None = None
    per: str = ""
    is_per_pod: bool = False

    def breaks(self, gpus: Units) -> bool:
        """Whether so many GPU units more would be too many."""
        return exceeds(self.taken + gpus, self.limit)

    def violation(self, request: Request, book: TeamUsage, *, room: Units | None = None) -> Reason:
        """Say that it is broken, with its sum; `room` is what all limits together leave, by default this one alone."""
        if room is None:
            room = 0 if isinstance(self.limit, Unlimited) else self.limit - self.taken
        holders = None if self.is_per_pod else self._holders(book)
        text = violation_text(
            request,
            self.subject,
            self.limit,
            taken=self.taken,
            room=room,
            holders=holders,
            reserved=book.reserved if self.code is Code.TEAM_LIMIT_EXCEEDED else None,
        )
        return Reason(self.code, text)

    def _holders(self, book: TeamUsage) -> list[Holder]:
        """Return who has the most of what this limit counts; a user's own limit names no user again."""
        is_guaranteed = self.code is Code.GUARANTEED_SHARE_USED
        found = book.largest(HOLDERS, user=self.user, model=self.model, is_guaranteed=is_guaranteed)
        return found if self.user is None else [holder._replace(user=None) for holder in found]


def violations(request: Request, account: Account) -> tuple[Reason, ...]:
    """Hold a request against the limits per pod, user and team; return every one it breaks."""
    gpus, (team, book, user, _) = request.gpus, account
    if not (
        exceeds(gpus, team.per_pod)
        or exceeds(book.total + gpus, team.gpus.limit)
        or (user is not None and exceeds(book.user(user) + gpus, team.per_user))
    ):
        return ()
    held = bars(account)
    room = min(bar.limit - bar.taken for bar in held if not isinstance(bar.limit, Unlimited))
    return tuple(bar.violation(request, book, room=room) for bar in held if bar.breaks(gpus))


def bars(account: Account) -> tuple[Bar, ...]:
    """Return the limits per pod, team and user; the last only where the user is known."""
    team, book, user, _ = account
    held = (
        Bar(Code.POD_LIMIT_EXCEEDED, f"one pod of team {team.name}", team.per_pod, 0, per=" per pod", is_per_pod=True),
        Bar(Code.TEAM_LIMIT_EXCEEDED, f"team {team.name}", team.gpus.limit, book.total),
    )
    if user is None:
        return held
    subject, taken = f"user {user} in team {team.name}", book.user(user)
    return (*held, Bar(Code.USER_LIMIT_EXCEEDED, subject, team.per_user, taken, user, per=" per user"))


def model_bars(team: Team, book: TeamUsage) -> tuple[Bar, ...]:
    """Return the team's limits per GPU model."""
    return tuple(_model_bar(team, book, model, share.limit) for model, share in team.models.items())


def model_violation(request: Request, team: Team, book: TeamUsage, model: GpuModel) -> Reason | None:
    """Hold a request against the team's limit for one GPU model; one that may end on any, against each of them."""
    share = team.models.get(model)
    if share is None and model != ANY_MODEL:
        return None
    held = model_bars(team, book) if share is None else (_model_bar(team, book, model, share.limit),)
    bar = next((bar for bar in held if bar.breaks(request.gpus)), None)
    if bar is None:
        return None
    room = min(each.limit - each.taken for each in held if not isinstance(each.limit, Unlimited))
    return bar.violation(request, book, room=room)


def guaranteed_violation(request: Request, team: Team, book: TeamUsage, model: GpuModel | None) -> Reason:
    """Say why a pod that asked never to borrow cannot have its GPUs from the guaranteed share."""
    subject, share, taken, of = f"team {team.name}, guaranteed share", team.gpus.guaranteed, book.guaranteed, None
    if model in team.models and model is not None and taken + request.gpus <= share:
        of = model
        subject, share, taken = f"{subject} of {model}", team.models[model].guaranteed, book.guaranteed_model(model)
    return Bar(Code.GUARANTEED_SHARE_USED, subject, share, taken, model=of).violation(request, book)


def has_guaranteed_room(gpus: Units, team: Team, book: TeamUsage, model: GpuModel | None) -> bool:
    """Whether the request stays inside the guaranteed share, of the team and of the model if it has one."""
    if book.guaranteed + gpus > team.gpus.guaranteed:
        return False
    share = team.models.get(model) if model is not None else None
    return share is None or model is None or book.guaranteed_model(model) + gpus <= share.guaranteed


def tier_for(gpus: Units, team: Team, book: TeamUsage, model: GpuModel | None, *, asked: Tier | None) -> Tier:
    """Return the tier that a pod would get: guaranteed while the share has room, unless it would rather borrow."""
    is_guaranteed = asked is not _PREEMPTIBLE and has_guaranteed_room(gpus, team, book, model)
    return _GUARANTEED if is_guaranteed else _PREEMPTIBLE


def _model_bar(team: Team, book: TeamUsage, model: GpuModel, limit: Limit) -> Bar:
    return Bar(Code.MODEL_LIMIT_EXCEEDED, f"team {team.name} on {model}", limit, book.model(model), model=model)
