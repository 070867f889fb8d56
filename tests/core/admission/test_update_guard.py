"""What may not be changed on a pod after its creation."""

from webhook.core.admission.admission import ProtectedKeys, guard
from webhook.core.model.decision import Deny, NotApplicable


def test_only_changes_are_guarded():
    old, new = ProtectedKeys("a", "preemptible", "{}"), ProtectedKeys("a", "guaranteed", "{}")
    assert isinstance(guard(old, new), Deny)
    assert isinstance(guard(old, old), NotApplicable)


def test_a_minimum_is_fixed_once_fairgate_decided_on_the_pod():
    old, new = (ProtectedKeys("a", "preemptible", "{}", minimum=each) for each in ("2", "9"))
    found = guard(old, new)
    assert isinstance(found, Deny)
    assert "annotation fairgate.dev/minimum from 2 to 9" in found.reasons[0].text
