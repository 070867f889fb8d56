"""What may not be changed on a pod after its creation."""

from webhook.core.admission.update_guard import ProtectedKeys, guard
from webhook.core.model.decision import Deny, NotApplicable


def test_only_changes_are_guarded():
    old, new = ProtectedKeys("a", "preemptible", "{}"), ProtectedKeys("a", "guaranteed", "{}")
    assert isinstance(guard(old, new), Deny)
    assert isinstance(guard(old, old), NotApplicable)
