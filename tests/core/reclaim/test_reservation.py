"""Reservations of a node: the claims and targets of a plan."""

from tests.core.support.reclaim_pods import NOW, asker
from tests.core.support.reservations import full, kept
from webhook.core.model.names import Uid
from webhook.core.reclaim.held_room import holds
from webhook.core.reclaim.reservation import targets_of


def test_a_plan_becomes_claims_and_targets():
    reclaim_index, _, holding = kept(*full(), asker("b", 2))
    assert [claim.uid for claim in holding.beneficiaries] == ["b"]
    assert [(target.uid, target.beneficiary, target.at) for target in holding.targets] == [
        ("a9", "b", NOW),
        ("a8", "b", NOW),
    ]
    assert [(hold.waiting.uid, hold.node) for hold in holds([holding], reclaim_index)] == [("b", "n0")]


def test_a_target_that_may_not_go_is_let_off():
    _, _, holding = kept(*full(), asker("b", 2))
    assert [target.uid for target in holding.without(Uid("a9")).targets] == ["a8"]
    assert targets_of((), at=NOW) == ()
