"""Teams and departments near the end of a limit."""

from fractions import Fraction

import pytest

from tests.core.support.departments import department, tree_policy
from tests.core.support.make import gpus, node, policy, resident, team, world
from webhook.addons.messages.server import limit_states
from webhook.core.model.amounts import GpuModel
from webhook.core.model.policy import Share

NINE_TENTHS = Fraction(9, 10)


@pytest.mark.parametrize(
    ("held", "want"),
    [
        (8, {}),
        (9, {"team-a": "team team-a holds 9 of at most 10 GPUs: 1 GPU left"}),
        (10, {"team-a": "team team-a holds 10 of at most 10 GPUs: nothing is left"}),
    ],
)
def test_a_team_is_named_from_its_share_of_the_limit_on(held, want):
    place = world(policy(team(limit_=10), team("team-b", limit_=None)), residents=[resident(held)])
    place.set_pod(resident(100, namespace="team-b"))
    assert {each.name: state.summary for each, state in limit_states(place, NINE_TENTHS).items()} == want


def test_a_limit_that_is_reached_is_news_after_one_that_is_near():
    near, full = (world(policy(team(limit_=10)), residents=[resident(held)]) for held in (9, 10))
    found = [next(iter(limit_states(each, NINE_TENTHS))) for each in (near, full)]
    assert [(each.name, each.severity) for each in found] == [("team-a", "info"), ("team-a", "warning")]


def test_a_limit_of_nothing_is_never_near():
    place = world(policy(team(guaranteed=0, limit_=0)), residents=[resident(1)])
    assert limit_states(place, NINE_TENTHS) == {}


def test_limits_of_departments_count_all_teams_below():
    place = world(tree_policy(left=department("left", "top", limit_=10)), residents=[resident(5)])
    place.set_pod(resident(4, namespace="team-b"))
    assert [each.name for each in limit_states(place, NINE_TENTHS)] == ["department left"]


def test_limits_of_a_model():
    models = {GpuModel("A100"): Share(0, gpus(10))}
    place = world(policy(team(models=models)), nodes=[node(model=GpuModel("A100"))], residents=[resident(9, node="n0")])
    assert [each.name for each in limit_states(place, NINE_TENTHS)] == ["team-a, model A100"]
