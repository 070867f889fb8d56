"""After creation no user may change a pod's team, tier or decision, nor the GPUs that a pod in line asks for.

kube-apiserver enforces this by itself (webhook.kube.registration.guards) and does not call the webhook. An API server
with another configuration that calls it all the same gets the same answer.
"""

from dataclasses import dataclass

from webhook.core.model import decision_annotation
from webhook.core.model.decision import Deny, NotApplicable
from webhook.core.model.pod import Pod
from webhook.core.model.reason import Code, Reason
from webhook.core.model.statement import Resource, Statement

_UNGATED = "only Fairgate may remove scheduling gate fairgate.dev/queue, in the pod's turn: leave it, or delete the pod"
_UNTOUCHED = NotApplicable(Reason(Code.NOT_A_CREATE, "the update leaves Fairgate's labels and decision alone"))


@dataclass(frozen=True, slots=True)
class ProtectedKeys:
    """The keys that only Fairgate writes; None where the pod does not have one. `is_queued`: it has Fairgate's gate.

    `minimum` is how many replicas are to stay, which its user wrote: it is fixed once Fairgate decided on the pod.
    """

    team: str | None
    tier: str | None
    decision: str | None
    is_queued: bool = False
    minimum: str | None = None


def guard(old: ProtectedKeys, new: ProtectedKeys) -> Deny | NotApplicable:
    """Deny an update that changes a protected key."""
    if old == new:
        return _UNTOUCHED
    if old.is_queued and not new.is_queued:
        return Deny((Reason(Code.PROTECTED_KEY_CHANGED, _UNGATED),))
    changes = (
        ("label fairgate.dev/team", old.team, new.team),
        ("label fairgate.dev/tier", old.tier, new.tier),
        ("annotation fairgate.dev/decision", old.decision, new.decision),
        ("annotation fairgate.dev/minimum", old.minimum, new.minimum),
    )
    changed = tuple(
        Statement("{key} from {before} to {after}", {"key": key, "before": _show(before), "after": _show(after)})
        for key, before, after in changes
        if before != after
    )
    words = "only Fairgate may change {changes:;}: leave it as it is"
    return Deny((Reason(Code.PROTECTED_KEY_CHANGED, words, {"changes": changed}),))


def guard_demand(pod: Pod) -> Deny | NotApplicable:
    """Deny an update by which a pod in line asks for other GPUs than when it was let in."""
    found = decision_annotation.read(pod.decision_annotation or "")
    if not pod.is_queued or pod.needs_resolution or found is None or found.demand == pod.demand.devices:
        return _UNTOUCHED
    asked = tuple([Resource(name, amount) for name, amount in found.demand])
    words = "the pod waits in line for {asked}, and what it asks for may not change: delete it and create it again"
    return Deny((Reason(Code.PROTECTED_KEY_CHANGED, words, {"asked": asked}),))


def _show(value: str | None) -> str:
    if value is None:
        return "nothing"
    return value if len(value) <= 40 else f"{value[:37]}..."  # noqa: PLR2004  # long decisions are cut for reading
