"""What a policy answers: its teams, who may use a pool, and whether it is enforced."""

from dataclasses import replace

import pytest

from tests.core.support.make import policy, pool, requirement, team
from webhook.core.model.policy import Enforcement, LabelSelector


def test_a_team_is_found_by_name():
    rules = policy(team(), team("team-b"))
    assert rules.team("team-b") == team("team-b")
    assert rules.team("team-c") is None


def test_a_changed_policy_finds_its_own_teams():
    changed = replace(policy(team(), team("team-b")), teams=(team("team-c"),))
    assert changed.team("team-c") == team("team-c")
    assert changed.team("team-b") is None


@pytest.mark.parametrize("enforce", Enforcement)
def test_only_one_stage_changes_anything(enforce):
    assert policy(enforce=enforce).is_enforced is (enforce is Enforcement.ENFORCE)


@pytest.mark.parametrize(
    ("teams", "want"),
    [(None, True), (frozenset({"team-a"}), True), (frozenset({"team-b"}), False), (frozenset(), False)],
    ids=["open to all", "the team is named", "another team is named", "no team is named"],
)
def test_a_pool_admits_the_teams_that_it_names(teams, want):
    assert pool("p", teams=teams).admits("team-a") is want


def test_all_requirements_of_a_selector_hold():
    selector = LabelSelector((requirement("app", "In", "web"), requirement("old", "DoesNotExist")))
    assert selector.matches({"app": "web"})
    assert not selector.matches({"app": "web", "old": ""})
    assert not selector.matches({})
    assert LabelSelector(()).matches({}), "an empty selector selects everything, as in Kubernetes"
