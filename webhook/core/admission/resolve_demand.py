"""The demand of a pod with its claims, shares and slices; pods with unknown GPU resources are refused here."""

from collections.abc import Collection, Iterable

from webhook.core.admission.pools import EVERY_TAINT
from webhook.core.model.decision import Deny, Retry
from webhook.core.model.demand import in_shares
from webhook.core.model.gpu_names import closest_name
from webhook.core.model.names import NodeName
from webhook.core.model.pod import Handling, Pod, Requester
from webhook.core.model.policy import Policy, UnknownGpu
from webhook.core.model.reason import Code, Reason
from webhook.core.world.alternatives import by_room
from webhook.core.world.world import World

_MIRROR = Handling.MIRROR
_DEFAULT_SCHEDULER = "default-scheduler"


def resolve_demand(pod: Pod, requester: Requester, world: World) -> Pod | Deny | Retry:
    """Return the pod with its complete demand: claimed devices added, resources unknown to policy checked.

    The result is idempotent. Objects that are not known yet are never guessed: they cause a Retry. Pods that are only
    counted are never refused here.
    """
    for node in claimed_nodes(pod, world) if pod.claims else ():
        pod = pod._replace(constraints=pod.constraints.on_node(node))
    is_sliced = pod.slices or (pod.node_name and world.fleet.slices.slots)
    if not (pod.claims or pod.shares_by or is_sliced) and world.claims.classes.are_ordinary(pod.demand.strange):
        return pod
    resolved = world.with_claims(pod)
    demand = resolved.demand
    if resolved.alternatives > 1:
        demand = by_room(pod, pod.constraints.joined(tolerations=EVERY_TAINT), world)
    bypasses = pod.node_name is not None and pod.shares_by in world.policy.defaults.share_schedulers
    has_problem = resolved.unknown or resolved.missing or bypasses
    if not has_problem or world.tenancy(pod.namespace).is_exempt or (pod.handling is _MIRROR and requester.is_kubelet):
        return pod._replace(demand=demand)
    if bypasses:
        return Deny((_bypassing(pod),))
    if resolved.unknown and world.policy.defaults.unknown_gpu is UnknownGpu.REJECT:
        asked = {name for name, _ in (pod.demand.own or pod.demand).requests}
        return Deny(tuple(unknown_gpu(name, world.policy, asked) for name in dict.fromkeys(resolved.unknown)))
    if resolved.missing:
        words = "not known yet: {missing}; create what is missing, or try again"
        return Retry(Reason(Code.CLAIM_UNKNOWN, words, {"missing": tuple(dict.fromkeys(resolved.missing))}))
    return pod._replace(demand=demand)


def claimed_nodes(pod: Pod, world: World) -> Iterable[NodeName]:
    """Return the nodes where the claims that a pod shares are allocated, or expected: it can run nowhere else."""
    keys = world.claims.shared_by(pod.uid, pod.namespace, pod.claims)
    return dict.fromkeys(node for key in keys if (node := world.claims.node_of(key, pod.uid)) is not None)


def as_created(pod: Pod, policy: Policy) -> Pod:
    """Return a pod of a manifest with the scheduler that HAMi's own webhook will set, as far as policy knows.

    On a live cluster that webhook runs first, and only the pod itself counts: a tenant can skip that webhook by a
    label.
    """
    schedulers = policy.defaults.share_schedulers
    if pod.shares_by == _DEFAULT_SCHEDULER and schedulers and _DEFAULT_SCHEDULER not in schedulers:
        handling = Handling.FOREIGN_SCHEDULER if pod.handling is Handling.MANAGED else pod.handling
        pod = pod._replace(shares_by=schedulers[0], handling=handling)
    return pod._replace(demand=in_shares(pod.demand, policy.resources)) if pod.shares_by in schedulers else pod


def _bypassing(pod: Pod) -> Reason:
    words = (
        "the pod asks {scheduler} for a share of a GPU and names its node {node} itself: then no scheduler keeps it to "
        "the share; remove spec.nodeName"
    )
    return Reason(Code.INVALID_REQUEST, words, {"scheduler": pod.shares_by, "node": pod.node_name})


def unknown_gpu(name: str, policy: Policy, asked: Collection[str] = ()) -> Reason:
    """Return the refusal of a resource or class that looks like a GPU and is not named in policy.

    What the pod asks for beside it (`asked`) is not what it was to be: HAMi's gpumem is no misspelled gpu.
    """
    suggestion = closest_name(name, tuple(policy.resources))
    suggestion = None if suggestion in asked else suggestion
    words = (
        "{resource} looks like a GPU, and policy does not say how much of one it is; ask your admin to name it in "
        "resources: gpus or perGpu for what it counts, gpus: 0 if it is none"
        if suggestion is None
        else "{resource} looks like a GPU, and policy does not say how much of one it is; did you mean {suggestion}? "
        "If not, ask your admin to name it in resources: gpus or perGpu for what it counts, gpus: 0 if it is none"
    )
    facts = {"resource": name} if suggestion is None else {"resource": name, "suggestion": suggestion}
    return Reason(Code.UNKNOWN_GPU_RESOURCE, words, facts)
