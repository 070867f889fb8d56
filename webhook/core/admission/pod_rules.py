"""Rules of a pod and a gang before limits.

Pods of a gang at the door: they wait in the queue until the whole gang is judged, so that no part of it holds GPUs.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from webhook.core.admission.assessment import Assessment
from webhook.core.admission.domain_rules import gang_refusal
from webhook.core.admission.queueing import (
    borrowed_limits,
    can_queue,
    over_limits,
    reasons_never_to_start,
    shared_limits,
    wait_in_line,
)
from webhook.core.model.amounts import Units, Unlimited
from webhook.core.model.constraints import MAX_MEMBERS, Gang
from webhook.core.model.decision import Admit, Decision, Deny, Queue
from webhook.core.model.pod import Handling, Pod
from webhook.core.model.policy import Policy, Team
from webhook.core.model.reasons import LIMITS, NO_ROOM, Code, Reason, Statement
from webhook.core.quota.limits import AppliedLimit
from webhook.core.world.pod_index import holder_of
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World


def starts_whole(gang: Gang, team: Team, policy: Policy) -> bool:
    """Whether a gang is queued until it can start whole: by its annotation, or since its team's pods may wait."""
    return gang.is_requested or can_queue(team, policy)


def queue_for_gang(assessed: Assessment, world: World) -> Queue | Deny | None:
    """Return whether a pod is queued for the rest of its gang; None for others, and where the gang has started."""
    pod, gang = assessed.pod, assessed.pod.gang
    if gang is None or assessed.early_decision is not None or pod.handling is not Handling.MANAGED:
        return None
    if not starts_whole(gang, assessed.account.team, world.policy):
        return None
    if world.gangs.has_started(gang.id):
        return _queue_for_reservation(assessed, gang, world)
    if never := reasons_never_to_start(assessed, world):
        return Deny(never)
    before = world.waiting.of_gang(gang.id)
    if refusal := _too_large(assessed, gang, before) or _never_fits(assessed, gang, before, world):
        return Deny((refusal,))
    come = len(before) + 1 + world.gangs.others(gang.id)
    sizes = sorted(({gang.size} | {member.pod.gang.size for member in before if member.pod.gang is not None}) - {0})
    queued = wait_in_line(assessed, Code.WAITS_FOR_GANG, come_so_far(gang.name, come, sizes[-1] if sizes else 0), world)
    return _with_disagreement(queued, gang, sizes) if len(sizes) > 1 and isinstance(queued, Queue) else queued


def _with_disagreement(queued: Queue, gang: Gang, sizes: Sequence[int]) -> Queue:
    """Add the warning that the pods of a gang declare several sizes, and which counts."""
    words = "pods of gang {gang} declare sizes from {least:,} to {most:,}: the largest counts"
    ignored = Reason(Code.GANG_IGNORED, words, {"gang": gang.name, "least": sizes[0], "most": sizes[-1]})
    return queued._replace(warnings=(*queued.warnings, ignored))


def _queue_for_reservation(assessed: Assessment, gang: Gang, world: World) -> Queue | None:
    """Return that a pod waits for the leader to give it the room that is kept for it; None where none is kept."""
    if gang.id not in world.gang_reservations:
        return None
    cause = Statement("room is reserved for it in gang {gang}", {"gang": gang.name})
    kept = wait_in_line(assessed, Code.WAITS_FOR_GANG, cause, world)
    return kept if isinstance(kept, Queue) else None


def come_so_far(gang: str, come: int, size: int) -> Statement:
    """Return how many members of a gang have come, of a size that is 0 where it is unknown."""
    if size:
        return Statement(
            "{come:,} of {size:,} members of gang {gang} have come", {"come": come, "size": size, "gang": gang}
        )
    words = "{come:member} of gang {gang} has come" if come == 1 else "{come:member} of gang {gang} have come"
    return Statement(words, {"come": come, "gang": gang})


def recounted(cause: Statement, come: int) -> Statement:
    """Return a cause that says how many members of a gang have come, with the number of now; others as they are."""
    gang, size, members = (cause.facts.get(name) for name in ("gang", "size", "members"))
    if isinstance(members, Statement):
        return cause.with_facts(members=recounted(members, come))
    is_counted = isinstance(cause.facts.get("come"), int) and isinstance(gang, str)
    return come_so_far(str(gang), come, size if isinstance(size, int) else 0) if is_counted else cause


def never_reason(assessed: Assessment, gang: str, gpus: Units) -> Reason | None:
    """Return why the members of a gang could not start together even if no pod held anything; None if they could."""
    limit = next(iter(limits_for(assessed.as_if_unused(), gpus)), None)
    if limit is None or isinstance(limit.limit, Unlimited):
        return None
    words = (
        "gang {gang} needs {gpus:GPUs} together, and the limit of {subject} is {limit:gpus}: it can never start whole; "
        "make it smaller"
    )
    facts = {"gang": gang, "gpus": gpus, "subject": limit.subject, "limit": limit.limit}
    return Reason(limit.code, words, facts)


def limits_for(assessed: Assessment, gpus: Units) -> list[AppliedLimit]:
    """Return the limits of the team, its user and departments that have no room for so many GPU units."""
    return [each for each in shared_limits(assessed) if each.model is None and each.is_exceeded_by(gpus)]


def over_together(
    assessed: Assessment, blocking: list[AppliedLimit], gang: str, gpus: Units, *, is_borrowed: bool
) -> Statement:
    """Return what is held of limits that have no room for a gang as a whole; `is_borrowed`: only for now."""
    held = borrowed_limits(assessed, blocking, gpus) if is_borrowed else over_limits(blocking, gpus)
    return Statement("gang {gang} needs {gpus:GPUs} together; {held}", {"gang": gang, "gpus": gpus, "held": held})


def _never_fits(assessed: Assessment, gang: Gang, before: Collection[WaitingPod], world: World) -> Reason | None:
    """Return why the nodes, or one domain where it requires one, could never hold what has come of a gang.

    Without a declared size each pod is judged alone, as in `_too_large`. To spare passes over all nodes, the pods
    together are judged when the last one comes, and at each doubling before.
    """
    pods = [assessed.pod]
    if gang.size and before:
        come = len(before) + 1
        if come != gang.size and come & (come - 1):
            return None
        pods += [member.pod for member in before]
    return gang_refusal(pods, gang, assessed.team.name, world)


def too_many(gang: str, size: int) -> Statement:
    """Return that a gang has more members than may start together."""
    words = "gang {gang} has {size:,} members; at most {most} start together"
    return Statement(words, {"gang": gang, "size": size, "most": MAX_MEMBERS})


def _too_large(assessed: Assessment, gang: Gang, before: Collection[WaitingPod]) -> Reason | None:
    """Return why a gang of a declared size is refused: what has come of it already is more than may ever start.

    Without a declared size the pods that came would pass for the whole gang once one of them is refused.
    """
    if gang.size > MAX_MEMBERS:
        return Reason(Code.TOO_LARGE, *too_many(gang.name, gang.size))
    if not gang.size or len(before) >= gang.size:
        return None
    needed = assessed.request.gpus + sum(member.pod.demand.gpus for member in before)
    return never_reason(assessed, gang.name, needed)


# A pod of a rolling update that waits behind the pods it replaces, which stay until it runs.


_HASH: Final = "pod-template-hash"
"""The label by which a Deployment's ReplicaSets differ: its value ends their names."""
_REPLICA_SET: Final = "ReplicaSet"
_BY_OLD_PODS: Final = LIMITS | NO_ROOM
_IN_LINE: Final = frozenset({Code.WAITS_FOR_LIMIT, Code.WAITS_FOR_ROOM})
NO_SURGE: Final = "set maxSurge: 0 and maxUnavailable: 1"
"""What lets a rolling update go on where there is no room for more pods than before."""


class OldPods(NamedTuple):
    """The ReplicaSets of a pod's Deployment from before its update, and the GPUs that their pods hold."""

    replica_sets: tuple[str, ...]
    gpus: Units

    @property
    def statement(self) -> Statement:
        """Why the update may never go on, and what to do."""
        words = "its Deployment's old pods hold {gpus:GPUs} ({replicaSets}), and may stay until it runs: {advice}"
        return Statement(words, {"gpus": self.gpus, "replicaSets": self.replica_sets, "advice": NO_SURGE})


def old_pods(pod: Pod, world: World) -> OldPods | None:
    """Return the pods that an update of a pod's Deployment replaces; None where there are none with GPUs."""
    owner = pod.owner
    if owner is None or owner.kind != _REPLICA_SET:
        return None
    template = pod.labels.get(_HASH)
    if not template or not owner.name.endswith(f"-{template}"):
        return None
    holder = holder_of(pod.namespace, pod.name, owner)
    older = sorted(world.usage(world.tenancy(pod.namespace).team_name).other_revisions(holder))
    if not older:
        return None
    return OldPods(tuple([name.rpartition("/")[2] for name, _ in older]), sum(gpus for _, gpus in older))


def with_old_pods(decision: Decision, pod: Pod, world: World) -> Decision:
    """Return a decision that says so where a pod is refused, or waits, for what its own old pods hold."""
    if pod.owner is None or pod.owner.kind != _REPLICA_SET or not _is_for_want(decision):
        return decision
    old = old_pods(pod, world)
    if old is None or old.gpus < pod.demand.gpus:
        return decision
    match decision:
        case Deny(reasons=(first, *others)):
            return Deny((_with(first, old), *others))
        case Queue(reason=reason, warnings=warnings):
            return decision._replace(warnings=(*warnings, Reason(reason.code, *old.statement)))
        case Admit(warnings=warnings):
            said = tuple([_with(each, old) if each.code in NO_ROOM else each for each in warnings])
            return decision._replace(warnings=said)
        case _:
            return decision


def _is_for_want(decision: Decision) -> bool:
    """Whether a pod is refused or waits only for what other pods hold."""
    match decision:
        case Deny(reasons=reasons):
            return all(reason.code in _BY_OLD_PODS for reason in reasons)
        case Queue(reason=reason):
            return reason.code in _IN_LINE
        case Admit(warnings=warnings):
            return any(warning.code in NO_ROOM for warning in warnings)
        case _:
            return False


def _with(reason: Reason, old: OldPods) -> Reason:
    return Reason(reason.code, "{reason}; {oldPods}", {"reason": reason.statement, "oldPods": old.statement})
