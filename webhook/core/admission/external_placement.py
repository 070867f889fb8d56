"""Externally placed pods: the limits per GPU model that apply to them, and the pools that are closed to them.

A pod with `nodeName` runs on that node, a DaemonSet pod on the node that its affinity names. A pod of another scheduler
may run on every node that offers the requested resources and meets its constraints: all of these nodes count, since the
choice is not made here.
"""

from typing import NamedTuple

from webhook.core.admission.pools import EVERY_TAINT, allowed_pools, membership
from webhook.core.model.decision import Retry
from webhook.core.model.gpu_shares import DEVICE
from webhook.core.model.names import ANY_MODEL, GpuModel, NodeName
from webhook.core.model.node import NO_MODEL
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Team
from webhook.core.model.reason import Code, Reason
from webhook.core.model.selector import Constraints, Operator, Requirement
from webhook.core.quota.limit_text import Request
from webhook.core.quota.limits import model_violation
from webhook.core.quota.usage import TeamUsage
from webhook.core.world.world import World


class ExternalPlacement(NamedTuple):
    """The charged model, None if the team has no shares per model, and every reason to refuse the pod."""

    model: GpuModel | None
    broken: tuple[Reason, ...]


def check_externally_placed(
    pod: Pod, request: Request, team: Team, usage: TeamUsage, world: World
) -> ExternalPlacement | Retry:
    """Check an externally placed pod against the team's limits per model and the teams of the pools."""
    if not (team.has_model_shares or world.policy.pools):
        return ExternalPlacement(None, ())
    node = pod.node_name or pod.constraints.named_node
    if node is not None and world.is_live and world.fleet.get(NodeName(node)) is None:
        return Retry(Reason(Code.RACE_LOST, "node {node} is not known yet: try again", {"node": node}))
    slots = _reachable(pod, world) if node is None else world.fleet.bit(NodeName(node))
    model = _model(pod, node, slots, world) if team.has_model_shares else None
    over = None if model is None else model_violation(request, team, usage, model)
    closed = _closed(pod, team, slots, world)
    return ExternalPlacement(model, tuple(reason for reason in (over, closed) if reason is not None))


def demanded_model(constraints: Constraints, world: World) -> GpuModel | None:
    """Return the one GPU model that the constraints require, by the node labels that name models; else None."""
    labels = {label for _, label in world.fleet.by_model() if label}
    return next((GpuModel(value) for label in sorted(labels) if (value := constraints.demanded(label))), None)


def model_requirements(model: GpuModel, label: str, world: World) -> tuple[Requirement, ...]:
    """Return requirements for the nodes of one model: the label that names it, or the absence of all such labels."""
    if label:
        return (Requirement(label, Operator.IN, (model,)),)
    known = sorted({other for _, other in world.fleet.by_model() if other})
    return tuple(Requirement(other, Operator.DOES_NOT_EXIST) for other in known)


def _reachable(pod: Pod, world: World) -> int:
    """Return the nodes that offer some of the requested devices, whether free and schedulable now or not.

    One of several resources is enough: a scheduler may ignore the others, and kubelet skips what its node lacks.
    """
    fleet = world.fleet
    # taints are ignored: tolerations can be added until the pod is bound
    slots = fleet.matching(pod.constraints.joined(tolerations=EVERY_TAINT))
    if pod.claims:
        return slots
    requested = pod.demand.devices + (((DEVICE, 1),) if pod.shares_by else ())
    offering = 0
    for name, amount in requested:
        offering |= fleet.offering(name, amount, slots)
    return offering


def _model(pod: Pod, node: str | None, slots: int, world: World) -> GpuModel:
    if node is not None:
        known = world.fleet.get(NodeName(node))
        return ANY_MODEL if known is None else known.model
    demanded = demanded_model(pod.constraints, world)
    reached = {model or NO_MODEL for (model, _), members in world.fleet.by_model().items() if members & slots}
    return demanded if demanded is not None and reached <= {demanded} else ANY_MODEL


def _closed(pod: Pod, team: Team, slots: int, world: World) -> Reason | None:
    """Return the refusal if the pod may run on a node of a closed pool that is in no open pool; else None."""
    policy, fleet = world.policy, world.fleet
    if not (policy.pools and slots):
        return None
    open_pools = allowed_pools(pod._replace(pool=None, requires=frozenset()), team.name, world).allowed
    open_slots = closed_slots = 0
    for pool in policy.pools:
        members = fleet.matching(membership(pool)) & slots
        if pool in open_pools:
            open_slots |= members
        else:
            closed_slots |= members
    closed = closed_slots & ~open_slots
    if not closed:
        return None
    node = fleet.names_of(closed)[0]
    pools = tuple([pool.name for pool in policy.pools if fleet.matching(membership(pool)) & fleet.bit(node)])
    others = tuple([pool.name for pool in open_pools]) or "none"
    words = (
        "the pod may run on node {node} of pool {pools}, which is closed to it; pools that are open to it: {open}. "
        "Name the nodes of one of those by nodeSelector"
    )
    return Reason(Code.NO_POOL_ALLOWED, words, {"node": node, "pools": pools, "open": others})
