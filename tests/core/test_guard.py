"""Who may change Fairgate's keys after creation."""

import pytest

from webhook.core.decision import Deny, NotApplicable
from webhook.core.guard import ProtectedKeys, Trust, guard
from webhook.core.pod import Requester

OURS = "system:serviceaccount:fairgate-system:fairgate"
TRUST = Trust(frozenset({"ada"}), own_user=OURS, own_manager="fairgate")


@pytest.mark.parametrize(
    ("username", "manager", "want"),
    [
        ("ada", "kubectl-label", True),
        (OURS, "fairgate", True),
        (OURS, "kubectl-label", False),
        (OURS, "", False),
        ("bob", "fairgate", False),
    ],
    ids=[
        "whom an admin named",
        "Fairgate itself",
        "a person with Fairgate's own credentials",
        "nobody says what for",
        "somebody who claims to be Fairgate",
    ],
)
def test_who_is_trusted(username, manager, want):
    assert TRUST.covers(Requester(username), field_manager=manager) is want


@pytest.mark.parametrize("username", ["", "bob"])
def test_until_fairgate_knows_its_own_name_nobody_is_taken_for_it(username):
    assert not Trust().covers(Requester(username), field_manager="")


def test_only_changes_are_guarded():
    old, new = ProtectedKeys("a", "preemptible", "{}"), ProtectedKeys("a", "guaranteed", "{}")
    assert isinstance(guard(old, new, is_trusted=False), Deny)
    assert isinstance(guard(old, new, is_trusted=True), NotApplicable)
    assert isinstance(guard(old, old, is_trusted=False), NotApplicable)
