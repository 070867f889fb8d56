"""The terms of teams, and who is exempt."""

import pytest

from tests.addons.idle.made import rules, terms
from tests.core.support.make import policy, requirement, team
from webhook.core.model.policy_addons import IdleAction, IdleOverride


@pytest.mark.parametrize(
    ("own", "want"),
    [
        (None, terms("report", below=5, for_=3600)),
        (IdleOverride(below_percent=20), terms("report", below=20, for_=3600)),
        (IdleOverride(for_seconds=60, actions=frozenset()), terms("report", below=5, for_=60)),
    ],
    ids=["none of its own", "a bound of its own", "a time of its own"],
)
def test_a_team_has_the_terms_of_all_where_it_has_none(own, want):
    found = rules("report").terms_of(own)
    assert (found.below_percent, found.for_seconds) == (want.below_percent, want.for_seconds)
    assert found.actions == (frozenset() if own is not None and own.actions is not None else want.actions)


def test_what_follows_is_that_of_the_team_and_nothing_without_rules():
    own = team("team-b", idle=IdleOverride(actions=frozenset({IdleAction.EVICT})))
    made = policy(team(), own, idle=rules("report"))
    assert made.on_idle("team-a") == {"report"}
    assert made.on_idle("team-b") == {"evict"}
    assert made.on_idle("unknown") == {"report"}
    assert made.on_idle(None) == policy().on_idle("team-a") == frozenset()


@pytest.mark.parametrize(
    ("namespace", "labels", "want"),
    [("dev-1", {}, True), ("prod", {"app": "web"}, True), ("prod", {"app": "x"}, False)],
    ids=["by namespace", "by label", "neither"],
)
def test_exemptions(namespace, labels, want):
    found = rules(exempt_namespaces=("dev-*",), exempt_selectors=((requirement("app", "In", "web"),),))
    assert found.exempts(namespace, labels) is want
