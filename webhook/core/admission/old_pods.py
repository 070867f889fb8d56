"""A pod of a rolling update that waits behind the pods it replaces, which stay until it runs."""

from typing import Final, NamedTuple

from webhook.core.model.amount import Units
from webhook.core.model.decision import Admit, Decision, Deny, Queue
from webhook.core.model.pod import Pod
from webhook.core.model.reason import LIMITS, NO_ROOM, Code, Reason
from webhook.core.model.statement import Statement
from webhook.core.world.pod_index import holder_of
from webhook.core.world.world import World

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
