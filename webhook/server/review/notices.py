"""Events about decisions on the owner of a pod: controllers show refusals and warnings to no user. Pure."""

from typing import Final, NamedTuple

from webhook.cluster.writes.owner_events import OwnerEvent
from webhook.core.model.decision import Admit, Decision, Deny
from webhook.core.model.reason import Code, refusal_text
from webhook.kube.admission.review import Operation, Review
from webhook.kube.objects.events import MAX_MESSAGE_BYTES, EventReason
from webhook.kube.objects.owners import controller_of

_WAITS: Final = {Code.NO_ROOM_NOW: EventReason.NO_ROOM_NOW, Code.NEVER_FITS: EventReason.NEVER_FITS}


def notice_of(review: Review, decision: Decision) -> OwnerEvent | None:
    """Return the Event for the controller of a pod: a refusal, or that the pod finds no room.

    None where there is nothing to report, no controller, or no change: a dry run, a name that is taken.
    """
    if review.dry_run or review.pod is None or review.operation is not Operation.CREATE:
        return None
    found = _notice(decision)
    owner = controller_of(review.pod.metadata, namespace=review.namespace)
    if owner is None or found is None:
        return None
    return OwnerEvent(owner, found.reason, found.text[:MAX_MESSAGE_BYTES], found.code)


class _Notice(NamedTuple):
    reason: EventReason
    text: str
    code: Code


def _notice(decision: Decision) -> _Notice | None:
    match decision:
        case Deny(reasons=reasons) if reasons[0].code is not Code.ALREADY_EXISTS:
            return _Notice(EventReason.REFUSED, refusal_text(reasons), reasons[0].code)
        case Admit(warnings=warnings):
            found = (each for each in warnings if each.code in _WAITS)
            return next((_Notice(_WAITS[each.code], f"{each.text} ({each.code})", each.code) for each in found), None)
        case _:
            return None
