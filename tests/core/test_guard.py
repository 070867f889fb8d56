"""What may not be changed on a pod after its creation."""

from webhook.core.decision import Deny, NotApplicable
from webhook.core.guard import ProtectedKeys, guard


def test_only_changes_are_guarded():
    old, new = ProtectedKeys("a", "preemptible", "{}"), ProtectedKeys("a", "guaranteed", "{}")
    assert isinstance(guard(old, new), Deny)
    assert isinstance(guard(old, old), NotApplicable)
