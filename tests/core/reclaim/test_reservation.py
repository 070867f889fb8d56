"""Reservations of a node: the beneficiaries and targets of a plan."""

from tests.core.support.reclaim_pods import NOW, asker
from tests.core.support.reservations import full, kept
from webhook.core.model.amounts import Uid
from webhook.core.reclaim.holds import targets_of
from webhook.core.reclaim.snapshot import holds


def test_a_plan_becomes_beneficiaries_and_targets():
    reclaim_index, _, node_hold = kept(*full(), asker("b", 2))
    assert [claim.uid for claim in node_hold.beneficiaries] == ["b"]
    assert [(target.uid, target.beneficiary, target.at) for target in node_hold.targets] == [
        ("a9", "b", NOW),
        ("a8", "b", NOW),
    ]
    assert [(hold.waiting.uid, hold.node) for hold in holds(reclaim_index, [node_hold])] == [("b", "n0")]


def test_a_protected_target_is_dropped():
    _, _, node_hold = kept(*full(), asker("b", 2))
    assert [target.uid for target in node_hold.without(Uid("a9")).targets] == ["a8"]
    assert targets_of((), at=NOW) == ()
