"""What is free under each limit, as plans read it."""

from tests.core.support import claims
from tests.core.support.departments import department, tree_policy
from tests.core.support.make import gpus, policy, resident, team, world
from webhook.core.reclaim.limit_victims import is_anything_borrowed, level_names, limit_levels

TREE = tree_policy(left=department("left", "top", limit_=9), top=department("top", limit_=20), team_limit=6)


def test_every_limit_above_a_team_is_there_with_its_teams_and_what_is_coming():
    held = [resident(5, uid="a"), resident(3, uid="b", namespace="team-b"), resident(2, uid="c", namespace="team-c")]
    found = limit_levels(["team-a"], world(TREE, residents=held), leaving=["b", "c", "unknown"])
    assert [(each.name, sorted(each.teams), each.free, each.coming) for each in found] == [
        ("team team-a", ["team-a"], gpus(1), 0),
        ("department left", ["team-a", "team-b"], gpus(1), gpus(3)),
        ("department top", ["team-a", "team-b", "team-c"], gpus(10), gpus(5)),
    ]


def test_a_claim_that_another_pod_uses_is_not_coming():
    place = claims.with_devices(8)
    place.set_policy(policy(team(limit_=10), resources=claims.BUILT_IN))
    place.set_claim(claims.SHARED, claims.spec(2))
    place.set_claim(claims.TEMPLATE, claims.spec(1))
    for uid in ("a", "b"):
        place.set_pod(claims.resident(uid, claims.SHARING, claims.MAKING, node="n0"))
    coming = {leaving: limit_levels(["team-a"], place, leaving=leaving)[0].coming for leaving in ("a", "b", "ab")}
    assert coming == {"a": gpus(1), "b": gpus(1), "ab": gpus(4)}


def test_levels_of_several_teams_are_there_once_and_unlimited_ones_not_at_all():
    found = [each.name for each in limit_levels(["team-a", "team-b", "gone"], world(TREE))]
    assert found == ["team team-a", "department left", "department top", "team team-b"]
    open_tree = tree_policy(left=department("left", "top"), top=department("top"), team_limit=6)
    assert level_names(open_tree.teams[0]) == ("team team-a",)
    assert level_names(policy(team(limit_=None)).teams[0]) == ()


def test_only_borrowers_under_a_limit_count():
    def borrows(rules, *held):
        return is_anything_borrowed(rules.teams[0], world(rules, residents=held))

    assert borrows(TREE, resident(1, tier="preemptible", namespace="team-c"))
    assert not borrows(TREE, resident(1, namespace="team-c"))
    assert not borrows(TREE, resident(1, tier="preemptible", namespace="team-d"))
    free = policy(team(limit_=None))
    assert not borrows(free, resident(1, tier="preemptible"))
