"""What a pod counts at the door, its claims included; unknown kinds of GPU end here."""

from webhook.core.decision import Deny, Retry
from webhook.core.pod import Handling, Pod, Requester
from webhook.core.policy import UnknownGpu
from webhook.core.reason import Code, Reason
from webhook.core.world import World

_MIRROR = Handling.MIRROR


def count(pod: Pod, requester: Requester, world: World) -> Pod | Deny | Retry:
    """Complete a pod's demand: add the devices it claims, look at resources that policy does not name.

    Counting again changes nothing. What is not known yet is never guessed: the pod is asked again. Pods that are only
    counted, whatever they ask for, are not held up here either.
    """
    if not pod.claims and world.are_ordinary(pod.demand.strange):
        return pod
    found = world.with_claims(pod.demand, pod.claims, namespace=pod.namespace, uid=pod.uid)
    is_held_up = found.unknown or found.missing
    if not is_held_up or world.tenancy(pod.namespace).is_exempt or (pod.handling is _MIRROR and requester.is_kubelet):
        return pod._replace(demand=found.demand)
    if found.unknown and world.policy.defaults.unknown_gpu is UnknownGpu.REJECT:
        return Deny(tuple(Reason(Code.UNKNOWN_GPU_RESOURCE, _unknown(name)) for name in dict.fromkeys(found.unknown)))
    if found.missing:
        listed = ", ".join(dict.fromkeys(found.missing))
        return Retry(Reason(Code.CLAIM_UNKNOWN, f"not known yet: {listed}; create what is missing, or try again"))
    return pod._replace(demand=found.demand)


def _unknown(name: str) -> str:
    return (
        f"{name} looks like a GPU, and policy does not say how much of one it is; ask your admin to name it in "
        "resources: gpus or perGpu for what it counts, gpus: 0 if it is none"
    )
