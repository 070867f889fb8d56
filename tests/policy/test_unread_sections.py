"""A section whose add-on is not installed is a problem of the policy, at the start and at each edit."""

import pytest

from webhook.policy.documents import PolicyError
from webhook.policy.watch import PolicyHolder, load

POLICY = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\nteams: []\n"
MOVES = "defragment: {onDemand: true}\n"


@pytest.fixture
def file(tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY + MOVES)
    return tmp_path / "policy.yaml"


def test_it_is_named_with_its_place_and_what_to_do(file):
    with pytest.raises(PolicyError) as raised:
        load(file.parent, unread={"defragment"})
    [problem] = raised.value.problems
    assert (problem.line, problem.path) == (4, "defragment")
    assert str(problem).endswith(
        "is without effect: the add-on that reads it is not installed; remove the section, or install it"
    )
    assert load(file.parent, unread={"idle"}).defragment.on_demand


def test_no_process_starts_with_it_and_an_edit_that_adds_it_is_not_applied(file):
    with pytest.raises(PolicyError):
        PolicyHolder(file.parent, unread={"defragment"})
    file.write_text(POLICY)
    holder = PolicyHolder(file.parent, unread={"defragment"})
    file.write_text(POLICY + MOVES)
    assert [holder.check() for _ in range(2)] == [False, False]
    assert "defragment: is without effect" in holder.problem
    assert not holder.current.defragment.on_demand
