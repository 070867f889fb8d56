"""Rules for pods with GPUs that do not depend on usage: keys and tolerations that only Fairgate may write."""

from webhook.core.model.decision import Deny, NotApplicable
from webhook.core.model.pod import Handling, Pod
from webhook.core.model.policy import Policy
from webhook.core.model.reason import Code, Reason
from webhook.core.model.selector import HELD, Effect, Toleration
from webhook.core.model.tier import Tier
from webhook.core.world.world import World

NO_GPU = NotApplicable(Reason(Code.NO_GPU, "the pod asks for no GPU that policy counts"))
"""The decision on a pod that takes no GPU."""

_MIRROR, _FOREIGN = Handling.MIRROR, Handling.FOREIGN_SCHEDULER  # access to an enum member costs 0.1 us
_TOLERATES_HELD = Reason(
    Code.HELD_ROOM,
    "the pod tolerates {taint}, which only Fairgate gives to waiting pods: remove that toleration",
    {"taint": HELD},
)
_TOLERATES_ALL = Reason(
    Code.HELD_ROOM,
    "the pod tolerates every taint, {taint} too, and another scheduler than kube-scheduler places it: name the keys of "
    "the taints in its tolerations",
    {"taint": HELD},
)
_FORGED_KEYS = Reason(
    Code.PROTECTED_KEY_CHANGED,
    "the pod carries label fairgate.dev/team, label fairgate.dev/tier: guaranteed or annotation fairgate.dev/decision, "
    "which only Fairgate writes, never on externally placed pods: remove them",
)
_FALSE_MIRROR = Reason(
    Code.INVALID_REQUEST,
    "the pod carries annotation kubernetes.io/config.mirror, by which kubelets report static pods: remove it",
)
_KEYS_WITHOUT_GPU = Reason(
    Code.PROTECTED_KEY_CHANGED,
    "the pod asks for no GPU and carries label fairgate.dev/team or tier, or annotation fairgate.dev/decision, as only "
    "pods with GPUs do: remove them",
)


def broken_rules(pod: Pod, policy: Policy) -> tuple[Reason, ...]:
    """Return the rules for all pods with GPUs that this pod breaks."""
    broken: tuple[Reason, ...] = ()
    for toleration in pod.constraints.tolerations:  # the evictor trusts labels and tolerations
        if toleration.key == HELD:
            broken = (_TOLERATES_HELD,)
            break
    if pod.grace_seconds > policy.defaults.maximum_grace_seconds:
        broken += (_grace_too_long(pod, policy.defaults.maximum_grace_seconds),)
    return broken


def rules_broken_if_external(pod: Pod, world: World) -> tuple[Reason, ...]:
    """Return the rules for externally placed pods that this pod breaks: forged keys, and room held for other pods."""
    broken = []
    if pod.team_label is not None or pod.decision_annotation is not None or pod.requested_tier is Tier.GUARANTEED:
        broken.append(_FORGED_KEYS)
    if pod.handling is _MIRROR:
        broken.append(_FALSE_MIRROR)
    if pod.handling is _FOREIGN and any(_opens_held_room(each) for each in pod.constraints.tolerations):
        broken.append(_TOLERATES_ALL)
    node = world.fleet.get(pod.node_name) if pod.node_name is not None else None
    if node is not None and any(taint.key == HELD for taint in node.taints):
        words = "node {node} holds its room for waiting pods: create the pod without nodeName, or later"
        broken.append(Reason(Code.HELD_ROOM, words, {"node": node.name}))
    return tuple(broken)


def without_gpus(pod: Pod, *, is_exempt: bool) -> Deny | NotApplicable:
    """Return the decision on a pod without GPUs: refused if it carries keys of pods with GPUs."""
    if is_exempt or (pod.team_label, pod.tier_label, pod.decision_annotation) == (None, None, None):
        return NO_GPU
    return Deny((_KEYS_WITHOUT_GPU,))


def _grace_too_long(pod: Pod, longest: int) -> Reason:
    """Return the refusal of a pod that could keep its GPUs too long after its deletion."""
    words = (
        "terminationGracePeriodSeconds is {seconds}, and pods with GPUs may have at most {longest}: a "
        "deleted pod keeps its GPUs for so long; ask for less, or have your admin raise defaults.maximumGracePeriod"
    )
    return Reason(Code.GRACE_PERIOD_TOO_LONG, words, {"seconds": pod.grace_seconds, "longest": longest})


def _opens_held_room(toleration: Toleration) -> bool:
    """Whether the toleration covers the taint of held nodes, for kube-scheduler and other schedulers."""
    return not toleration.key and toleration.exists and toleration.effect in (None, Effect.NO_SCHEDULE)
