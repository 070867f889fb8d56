"""Borrowed shares come back the same way round: first from outside of the department, then from inside."""

from dataclasses import replace

from tests.core.support.departments import department
from tests.core.support.make import gpus, node, policy, resident, team, world
from tests.core.support.scenes import gone, scene, victim, waiting
from webhook.core.model.amounts import TeamName
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_plan import DepartmentOrder
from webhook.core.reclaim.snapshot import take_snapshot

B = TeamName("team-b")  # the team of waiting pods


def tree(*, research=8, language=0, product=0):
    """Research over language (team-b, nlp) and vision; product over search; free has no department."""
    top = department("research", guaranteed=research)
    below = department("language", "research", guaranteed=language)
    beside = department("product", guaranteed=product)
    teams = (
        team(B, guaranteed=2, departments=(below, top)),
        team("nlp", guaranteed=0, departments=(below, top)),
        team("vision", guaranteed=0, departments=(top,)),
        team("search", guaranteed=0, departments=(beside,)),
        team("free", guaranteed=0),
    )
    return policy(*teams, departments=(top, below, beside))


def borrowing(**held):
    """Pods of one GPU each, borrowed by these teams."""
    return [
        resident(1, uid=f"{name}-{number}", namespace=name, tier="preemptible", node="n0")
        for name, count in held.items()
        for number in range(count)
    ]


def department_order(policy_, **held):
    place = world(policy_, nodes=[node("n0", gpus=40)], residents=borrowing(**held))
    return DepartmentOrder(policy_.teams, place.departments())


def ranked(costs, *names):
    return sorted(names, key=lambda name: costs.get(TeamName(name), 0))


def test_those_with_the_fewest_departments_in_common_go_first():
    found = department_order(tree(research=0), nlp=1, vision=1, search=1, free=1).costs(B)
    assert ranked(found, "nlp", "vision", "search") == ["search", "vision", "nlp"]
    assert found.get(TeamName("free"), 0) == found.get(TeamName("search"), 0) == 0


def test_a_department_inside_its_share_goes_last():
    found = department_order(tree(research=0, product=2), nlp=3, vision=3, search=2).costs(B)
    assert ranked(found, "search", "vision", "nlp") == ["vision", "nlp", "search"]
    over = department_order(tree(research=0, product=2), nlp=3, vision=3, search=3).costs(B)
    assert ranked(over, "search", "vision", "nlp") == ["search", "vision", "nlp"]


def test_inside_one_department_the_shares_of_those_below_count():
    found = department_order(tree(research=0, language=2), nlp=2, vision=3).costs(TeamName("vision"))
    assert ranked(found, "nlp", "vision") == ["vision", "nlp"]


def test_no_number_of_others_outweighs_one_that_goes_later():
    found = department_order(tree(research=0), nlp=1, vision=1).costs(B)
    assert found[TeamName("nlp")] > gpus(1_000_000) * found[TeamName("vision")] > 0


def test_without_departments_nothing_costs():
    assert DepartmentOrder(policy().teams).costs(B) == {}
    assert DepartmentOrder().home(B) is None


def test_beneficiaries_of_one_department_share_their_costs():
    found = department_order(tree(), nlp=1)
    assert found.home(B) == "language"
    assert found.costs(B) is found.costs(TeamName("nlp"))
    assert found.costs(B) is not found.costs(TeamName("vision"))


def test_a_plan_takes_what_was_borrowed_outside_first_whatever_the_work_lost():
    """The borrower outside of the department has worked longest, and is on another node."""
    policy_ = tree(research=0)
    borrowed = [
        *(victim(f"nlp-{n}", team="nlp", on="n0", saved=99_990) for n in range(2)),
        *(victim(f"vision-{n}", team="vision", on="n1", saved=90_000) for n in range(2)),
        *(victim(f"search-{n}", team="search", on="n2") for n in range(2)),
    ]
    held = department_order(policy_, nlp=2, vision=2, search=2)
    wants = [waiting(f"b{n}", since=n) for n in range(6)]
    found = plan(wants, scene(borrowed, nodes=3, size=2, department_order=held))
    assert [name.partition("-")[0] for name in gone(found)] == ["search"] * 2 + ["vision"] * 2 + ["nlp"] * 2
    without = plan(wants[:1], scene(borrowed, nodes=3, size=2))
    assert gone(without) == ["nlp-0"]


def test_pods_of_two_departments_that_wait_for_the_same_get_victims_of_their_own():
    """The offers of nodes are kept by demand: a pod of another department must not get those of the first."""
    policy_ = tree(research=0)
    borrowed = [
        *(victim(f"nlp-{n}", team="nlp", on="n0", saved=90_000) for n in range(2)),
        *(victim(f"search-{n}", team="search", on="n1") for n in range(2)),
    ]
    wants = [waiting("b0", since=0), waiting("s0", since=1)]
    wants[1] = replace(wants[1], pod=resident(uid="s0", namespace="search", demand=wants[1].demand, created=1))
    found = plan(wants, scene(borrowed, nodes=2, size=2, department_order=department_order(policy_, nlp=2, search=2)))
    assert {move.waiting.name: move.victims[0].team for move in found.moves} == {"b0": "search", "s0": "nlp"}


def test_a_snapshot_has_it_only_where_policy_has_departments():
    plain, above = world(), world(tree())
    assert take_snapshot(ReclaimIndex(plain.policy.reclaim), plain, now=0).department_order.costs(B) == {}
    assert take_snapshot(ReclaimIndex(above.policy.reclaim), above, now=0).department_order.home(B) == "language"
