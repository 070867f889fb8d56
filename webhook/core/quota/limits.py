"""Limits and their texts.

What is said of a broken limit: requested, limit, used, the largest holders, and what would pass now.

Events count equal messages, so each attempt of a controller must produce the same one: a message contains nothing that
changes by the second once reservations are in use, and ages are coarse.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from webhook.core.model.amounts import (
    ANY_MODEL,
    MILLI_GPU,
    ONE_GPU,
    UNLIMITED,
    GpuModel,
    Limit,
    ResourceName,
    Units,
    Unlimited,
    User,
    coarse_age,
    exceeds,
    shortened,
)
from webhook.core.model.constraints import Tier
from webhook.core.model.demand import Weights
from webhook.core.model.pod import Handling, Pod, Resident
from webhook.core.model.policy import Team
from webhook.core.model.reasons import Code, Reason, Statement
from webhook.core.quota.shares import DepartmentUsage, Holder
from webhook.core.quota.usage import TeamUsage

HOLDERS: Final = 3
"""The number of holders in a message."""

_LONGEST_USER: Final = 63
_WAITING_SECONDS: Final = 60
"""The age at which a pod is reported as waiting: kube-scheduler binds a pod that fits within seconds."""

WAIT: Final = Statement("wait until a holder ends, or delete one")
_ENDING: Final = Statement("wait until the nodes of the deleted pods have ended them")

_LESS: Final = Statement("less")
_DELETED: Final = Statement("deleted, its node has not ended it")
_IS_WAITING: Final = Statement("waiting")
_NO_WEIGHTS: Final[Weights] = {}


class Request(NamedTuple):
    """What is requested, as far as a message needs it.

    `devices` are the GPU resources by name with their amounts, `now` is in seconds of Unix time, 0 to leave out ages.
    """

    gpus: Units
    devices: tuple[tuple[ResourceName, int], ...] = ()
    weights: Weights = _NO_WEIGHTS
    now: int = 0

    @property
    def piece(self) -> tuple[ResourceName, Units] | None:
        """The one requested resource and the GPU units of one piece; None if there is no single one."""
        if len(self.devices) != 1:
            return None
        [(name, number)] = self.devices
        weight = self.weights.get(name, 0)
        return (name, weight) if weight and number * weight == self.gpus else None


def violation(
    request: Request,
    subject: Statement,
    limit: Limit,
    *,
    taken: Units,
    room: Units,
    holders: Sequence[Holder] | None,
    reserved: Units | None = None,
    lingering: Units = 0,
    kept: Units = 0,
    wait: Statement = WAIT,
) -> Statement:
    """Return which limit is broken and what to do; `holders` is None where waiting cannot help.

    `reserved` is the part of `taken` that pods in creation hold, None if not known, and `lingering` the part of that
    which pods deleted by force left. `kept` is room besides that waiting pods inside their guaranteed shares get first.
    `wait` is the advice if nothing is left.
    """
    facts: dict[str, Any] = {"subject": subject, "requested": request.gpus, "limit": limit}
    words = "{subject}: requested {requested:gpus}"
    piece = request.piece
    if piece is not None and piece[1] != ONE_GPU:
        words += " ({resource} {pieces})"
        facts |= {"resource": piece[0], "pieces": request.devices[0][1]}
    words += ", limit {limit:limit}"
    if holders is None:
        words += "; split the work over more pods, or ask for {most} per pod"
        return Statement(words, facts | {"most": _most(request, limit)})
    words += ", used {used:gpus}"
    facts["used"] = taken - (reserved or 0)
    if reserved is not None:
        words += ", reserved {reserved:gpus}"
        facts["reserved"] = reserved
        if lingering:
            words += " ({lingering:gpus} of pods deleted by force)"
            facts["lingering"] = lingering
    if kept:
        words += ", reserved for pods inside their guaranteed shares {kept:gpus}"
        facts["kept"] = kept
    if holders:
        words += "; largest holders: {holders}"
        facts["holders"] = tuple([_holder(holder, request.now) for holder in holders])
        wait = _ENDING if all(holder.is_leaving for holder in holders) else wait
    return Statement(words + "; {advice}", facts | {"advice": _advice(request, limit, room, wait)})


def _advice(request: Request, limit: Limit, room: Units, wait: Statement) -> Statement:
    if room > 0 and _pieces(request, room) != 0:
        return Statement("a request of {most} would pass now", {"most": _most(request, room)})
    words = "no request would pass now: {wait}"
    facts: dict[str, Any] = {"wait": wait}
    if room > 0:
        words = "no {noun} would pass now ({room:gpus} is left): {wait}"
        facts |= {"noun": _noun(request), "room": room}
    if exceeds(request.gpus, limit):
        words += "; one of more than {limit:limit} never will"
        facts["limit"] = limit
    return Statement(words, facts)


def _noun(request: Request) -> str:
    piece = request.piece
    return "request" if piece is None else "whole GPU" if piece[1] == ONE_GPU else piece[0]


def _most(request: Request, room: Units | Unlimited) -> Statement:
    """Return the largest request that fits into the room, in the requested resource."""
    if isinstance(room, Unlimited):
        return _LESS
    piece, pieces = request.piece, _pieces(request, room)
    if piece is None or pieces is None:
        return Statement("at most {gpus:gpus}" if room >= MILLI_GPU else "{gpus:gpus}", {"gpus": room})
    if not pieces:
        return _LESS
    if piece[1] == ONE_GPU:
        return Statement("at most {gpus:gpus}", {"gpus": pieces * ONE_GPU})
    return Statement("at most {pieces} {resource}", {"pieces": pieces, "resource": piece[0]})


def _pieces(request: Request, room: Units) -> int | None:
    """Return how many pieces of the requested resource fit; None if there is no single one."""
    piece = request.piece
    return None if piece is None else max(0, room // piece[1])


def _holder(holder: Holder, now: int) -> Statement:
    """Return a holder with its GPUs, its user, the age of the holding, and whether it still waits."""
    details: list[str | Statement] = []
    if holder.user is not None and not holder.user.startswith("system:"):
        details.append(shortened(holder.user, _LONGEST_USER))
    age = max(0, now - holder.since) if now and holder.since else None
    if age is not None and (coarse := coarse_age(age)):
        details.append(coarse)
    if holder.is_leaving:
        details.append(_DELETED)
    elif holder.is_waiting and (age is None or age >= _WAITING_SECONDS):
        details.append(_IS_WAITING)
    facts: dict[str, Any] = {"holder": holder.name, "gpus": holder.gpus}
    if not details:
        return Statement("{holder} {gpus:gpus}", facts)
    return Statement("{holder} {gpus:gpus} ({details})", facts | {"details": tuple(details)})


# Hard limits: every violation with its numbers, the largest holders, and the largest request that would pass now.
#
# A new kind of limit is one more `AppliedLimit` in `applied_limits` and its comparison in `violations`. Admission, the
# commit, explanations, policy replay and the workload check all read it from here.


MOST_LINGERING: Final = 100
"""Pods deleted by force that nodes may still run, of one team: its ledger lists no more of them, and while there are as
many, the team gets no other pod. So what a ledger does not list lets no team exceed its limit."""

_WAIT_FOR_TEAMS: Final = Statement("wait until a pod of one of these teams ends")


class Account(NamedTuple):
    """What a request is charged to: the team, its usage, the user if known, and the pod, with whether it is queued."""

    team: Team
    usage: TeamUsage
    user: User | None
    pod: Pod | Resident
    is_in_line: bool = False


@dataclass(frozen=True, slots=True)
class AppliedLimit:
    """One limit that applies to a request; `taken` is the usage that counts toward it.

    `user` and `model` restrict it to a user or a GPU model; None means the whole team. `level` is the department whose
    limit it is; None for a limit of the team. `per` completes "limit" in messages. A limit with `is_per_pod` applies to
    each pod alone, the others to the sum of all pods. `kept` is room that a borrowing pod must leave (`KeptRoom`).
    """

    code: Code
    subject: Statement
    limit: Limit
    taken: Units
    user: User | None = None
    model: GpuModel | None = None
    per: str = ""
    is_per_pod: bool = False
    level: DepartmentUsage | None = field(default=None, compare=False)
    kept: Units = 0

    def is_exceeded_by(self, gpus: Units) -> bool:
        """Whether this many more GPU units would exceed the limit."""
        return exceeds(self.taken + self.kept + gpus, self.limit)

    def violation(self, request: Request, usage: TeamUsage, *, room: Units | None = None) -> Reason:
        """Return the reason with its numbers; `room` is what all limits together leave, by default this one alone."""
        if room is None:
            room = 0 if isinstance(self.limit, Unlimited) else self.limit - self.taken - self.kept
        holders = None if self.is_per_pod else self.holders(usage)
        said = violation(
            request,
            self.subject,
            self.limit,
            taken=self.taken,
            room=room,
            holders=holders,
            reserved=self._reserved(usage),
            lingering=(self.level or usage).lingering,
            kept=self.kept,
            wait=WAIT if self.level is None else _WAIT_FOR_TEAMS,
        )
        return Reason(self.code, *said)

    def _reserved(self, usage: TeamUsage) -> Units | None:
        if self.level is not None and self.model is None:
            return self.level.reserved
        return usage.reserved if self.code is Code.TEAM_LIMIT_EXCEEDED else None

    def holders(self, usage: TeamUsage) -> list[Holder]:
        """Return the largest holders of what this limit counts: teams of a department's limit, otherwise controllers.

        Those of a user limit do not repeat the user.
        """
        if self.level is not None:
            return self.level.largest(HOLDERS, model=self.model)
        is_guaranteed = self.code is Code.GUARANTEED_SHARE_USED
        holders = usage.largest(HOLDERS, user=self.user, model=self.model, is_guaranteed=is_guaranteed)
        return holders if self.user is None else [holder._replace(user=None) for holder in holders]


def violations(request: Request, account: Account) -> tuple[Reason, ...]:
    """Return every limit per pod, user, team and department that a request breaks."""
    gpus, (team, usage, user, *_) = request.gpus, account
    per_pod, limit, per_user = team.per_pod, team.gpus.limit, team.per_user
    if not (  # most limits are unlimited: a call for each costs more than all comparisons
        (per_pod is not UNLIMITED and gpus > per_pod)
        or (limit is not UNLIMITED and usage.total + gpus > limit)
        or (per_user is not UNLIMITED and user is not None and usage.user(user) + gpus > per_user)
        or (usage.levels and any(exceeds(each.total + gpus, each.department.gpus.limit) for each in usage.levels))
        or must_leave_kept_room(gpus, account)
        or usage.lingering_pods >= MOST_LINGERING
    ):
        return ()
    held, many = applied_limits(account), _too_many_lingering(account)
    broken = [applied for applied in held if applied.is_exceeded_by(gpus)]
    if not broken:  # what is kept leaves enough room
        return many
    room = min(
        applied.limit - applied.taken - applied.kept for applied in held if not isinstance(applied.limit, Unlimited)
    )
    return (*[applied.violation(request, usage, room=room) for applied in broken], *many)


def _too_many_lingering(account: Account) -> tuple[Reason, ...]:
    """Return the refusal of a team of which nodes may still run too many pods that were deleted by force."""
    if account.usage.lingering_pods < MOST_LINGERING:
        return ()
    words = (
        "team {team}: its nodes may still run {pods:pod} deleted by force, and at most {most} may be; wait until their "
        "grace periods are over, or delete with --grace-period=1 instead"
    )
    facts = {"team": account.team.name, "pods": account.usage.lingering_pods, "most": MOST_LINGERING}
    return (Reason(Code.TOO_MANY_FORCE_DELETED, words, facts),)


def applied_limits(account: Account) -> tuple[AppliedLimit, ...]:
    """Return the limits per pod, of the team, of the departments above it, and per user if the user is known."""
    team, usage, user, pod, _ = account
    leaves_kept, apart = must_leave_kept_room(pod.demand.gpus, account), None
    if leaves_kept and pod.handling is not Handling.NODE_NAME and _is_inside_share(pod.demand.gpus, account):
        apart = team.name
    held = (
        AppliedLimit(
            Code.POD_LIMIT_EXCEEDED,
            Statement("one pod of team {team}", {"team": team.name}),
            team.per_pod,
            0,
            per=" per pod",
            is_per_pod=True,
        ),
        AppliedLimit(
            Code.TEAM_LIMIT_EXCEEDED,
            Statement("team {team}", {"team": team.name}),
            team.gpus.limit,
            usage.total,
            kept=usage.kept.to_leave(usage.lingered, apart=apart) if leaves_kept else 0,
        ),
        *[
            _applied_department_limit(
                level, kept=level.kept.to_leave(level.lingered, apart=apart) if leaves_kept else 0
            )
            for level in usage.levels
        ],
    )
    if user is None:
        return held
    subject, taken = Statement("user {user} in team {team}", {"user": user, "team": team.name}), usage.user(user)
    return (*held, AppliedLimit(Code.USER_LIMIT_EXCEEDED, subject, team.per_user, taken, user, per=" per user"))


def must_leave_kept_room(gpus: Units, account: Account) -> bool:
    """Whether some room is kept under the limits of a pod that would borrow: it is not for pods that do.

    A pod that is not queued is like one if its team's pods deleted by force left so much that the share would not hold
    that, too: it leaves what is kept for other teams. One that names its node, which passes the queue, leaves all then.
    """
    _, usage, _, pod, is_in_line = account
    is_kept = usage.kept.teams or (usage.lingered and usage.kept.lines)
    if not (is_kept or any(each.kept.teams or (each.lingered and each.kept.lines) for each in usage.levels)):
        return False
    lingered = 0 if is_in_line else usage.lingered
    is_ahead = bool(lingered) and pod.handling is Handling.NODE_NAME
    return is_ahead or not _is_inside_share(gpus + lingered, account)


def _is_inside_share(gpus: Units, account: Account) -> bool:
    """Whether a pod does not borrow: it does not ask to, and its team's share has room."""
    is_by_choice = account.pod.requested_tier is Tier.PREEMPTIBLE
    return not is_by_choice and has_guaranteed_room(gpus, account.team, account.usage, None)


def applied_model_limits(team: Team, usage: TeamUsage) -> tuple[AppliedLimit, ...]:
    """Return the limits per GPU model, of the team and of the departments above it."""
    return tuple(limits_on_model(team, usage, ANY_MODEL))


def model_violation(request: Request, team: Team, usage: TeamUsage, model: GpuModel) -> Reason | None:
    """Return the limit for a GPU model that a request breaks; with `ANY_MODEL`, the first broken of all models."""
    held = list(limits_on_model(team, usage, model))
    applied = next((applied for applied in held if applied.is_exceeded_by(request.gpus)), None)
    if applied is None:
        return None
    room = min(each.limit - each.taken for each in held if not isinstance(each.limit, Unlimited))
    return applied.violation(request, usage, room=room)


def guaranteed_violation(request: Request, team: Team, usage: TeamUsage, model: GpuModel | None) -> Reason:
    """Return why the guaranteed share has no room for a pod that must not borrow."""
    subject = Statement("team {team}, guaranteed share", {"team": team.name})
    share, taken, of = team.gpus.guaranteed, usage.guaranteed, None
    if model in team.models and model is not None and taken + request.gpus <= share:
        of, share, taken = model, team.models[model].guaranteed, usage.guaranteed_model(model)
        subject = Statement("team {team}, guaranteed share of {model}", {"team": team.name, "model": model})
    return AppliedLimit(Code.GUARANTEED_SHARE_USED, subject, share, taken, model=of).violation(request, usage)


def has_guaranteed_room(gpus: Units, team: Team, usage: TeamUsage, model: GpuModel | None) -> bool:
    """Whether the guaranteed share of the team, and of the model if it has one, has room for the request."""
    if usage.guaranteed + gpus > team.gpus.guaranteed:
        return False
    share = team.models.get(model) if model is not None else None
    return share is None or model is None or usage.guaranteed_model(model) + gpus <= share.guaranteed


def tier_for(gpus: Units, team: Team, usage: TeamUsage, model: GpuModel | None, *, requested: Tier | None) -> Tier:
    """Return the tier of a pod: guaranteed while the share has room, unless it requests preemptible."""
    if requested is Tier.PREEMPTIBLE or not has_guaranteed_room(gpus, team, usage, model):
        return Tier.PREEMPTIBLE
    return Tier.GUARANTEED


def limits_on_model(team: Team, usage: TeamUsage, model: GpuModel) -> Iterator[AppliedLimit]:
    """Yield the limits for a GPU model at each level, those of the team first; with `ANY_MODEL`, for all models."""
    for each, share in team.models.items():
        if model in (each, ANY_MODEL):
            yield _applied_model_limit(team, usage, each, share.limit)
    for level in usage.levels:
        for each, share in level.department.models.items():
            if model in (each, ANY_MODEL):
                yield _applied_department_limit(level, share.limit, each)


def _applied_department_limit(
    level: DepartmentUsage, limit: Limit | None = None, model: GpuModel | None = None, *, kept: Units = 0
) -> AppliedLimit:
    department = level.department
    subject = Statement("department {department}", {"department": department.name})
    if model is not None:
        subject = Statement("department {department} on {model}", {"department": department.name, "model": model})
    return AppliedLimit(
        Code.DEPARTMENT_LIMIT_EXCEEDED,
        subject,
        department.gpus.limit if limit is None else limit,
        level.total if model is None else level.model(model),
        model=model,
        level=level,
        kept=kept,
    )


def _applied_model_limit(team: Team, usage: TeamUsage, model: GpuModel, limit: Limit) -> AppliedLimit:
    subject = Statement("team {team} on {model}", {"team": team.name, "model": model})
    return AppliedLimit(Code.MODEL_LIMIT_EXCEEDED, subject, limit, usage.model(model), model=model)
