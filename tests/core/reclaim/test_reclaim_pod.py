"""GPU pods in reclaim: possible victims and what protects them."""

from tests.core.support.reclaim_pods import borrower
from webhook.core.model.policy import LabelSelector, ReclaimRules
from webhook.core.model.selector import Operator, Requirement
from webhook.core.reclaim.reclaim_pod import victim_of

APP = LabelSelector((Requirement("app", Operator.IN, ("kept",)),))
NO_RULES = ReclaimRules()


def test_a_long_grace_period_is_cut_and_costs():
    """It counts as work that is lost, no more of it than the victim will get."""
    short, long = (victim_of(borrower("p", grace_seconds=s), rules=NO_RULES, guards=()) for s in (30, 86_400 * 365))
    bound = NO_RULES.longest_grace_seconds
    assert (short.grace_seconds, long.grace_seconds) == (None, bound)
    assert short.saved_at - long.saved_at == bound - 30
