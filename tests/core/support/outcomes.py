"""The outcome of a decision: a test states only what it expects."""

from tests.core.support.make import ALICE
from webhook.core.admission.admission import admit
from webhook.core.model.constraints import Constraints
from webhook.core.model.decision import Admit, Deny
from webhook.core.model.reasons import Code, Reason


def codes(decision) -> list[Code]:
    assert isinstance(decision, Deny), decision
    return [reason.code for reason in decision.reasons]


def admitted(decision) -> Admit:
    assert isinstance(decision, Admit), decision
    return decision


def outcome_of(asked, place):
    """Return the outcome, its code and its text: of the refusal, or of the warning of a pod that waits.

    That it asks for no GPU model keeps no pod waiting.
    """
    decision = admit(asked, ALICE, place)
    if isinstance(decision, Deny):
        return "refused", *said(decision.reasons[0])
    assert isinstance(decision, Admit)
    waits = [each for each in decision.warnings if each.code is not Code.ANY_MODEL]
    return ("waits", *said(waits[0])) if waits else ("runs", decision.reason.code, "")


def said(reason: Reason) -> tuple[Code, str]:
    """Return the code and the text of a reason."""
    return reason.code, reason.text


def selecting(**labels):
    return {"constraints": Constraints(node_selector=tuple(labels.items()))}
