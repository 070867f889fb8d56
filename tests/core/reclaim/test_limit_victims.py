"""The cheapest victims under a limit, against a search by brute force."""

from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import gpus
from tests.core.support.scenes import NOW, victim
from tests.examples import examples
from webhook.core.model.policy import ReclaimCost
from webhook.core.reclaim.costs import CostScale
from webhook.core.reclaim.limit_victims import ROWS, cheapest_under

ORDER = tuple(ReclaimCost)


def scale(**more):
    return CostScale(NOW, {}, ORDER, more.pop("left", {}), more.pop("gone", frozenset()), **more)


def names(choice):
    return None if choice is None else sorted(each.name for each in choice.victims)


def test_the_one_that_loses_least_work_goes_on_whatever_node():
    pods = [victim("a", saved=1), victim("b", on="n7", saved=9), victim("c", on="n3", saved=5)]
    assert names(cheapest_under(gpus(1), pods, scale=scale())) == ["b"]


def test_one_that_frees_no_more_than_is_missing_goes_before_a_larger_one():
    pods = [victim("large", 4, saved=9), victim("small", 1, saved=1)]
    assert names(cheapest_under(gpus(1), pods, scale=scale())) == ["small"]


def test_those_that_may_not_go_are_left():
    pods = [victim("young", until=NOW + 1), victim("gone"), victim("spared"), victim("poor", team="team-z")]
    rules = scale(gone={"gone"}, spared={"spared"}, exhausted={"team-z"})
    assert cheapest_under(gpus(1), pods, scale=rules) is None


def test_of_many_victims_that_all_differ_enough_are_searched():
    """More rows than are searched at first: their number alone does not hide the room."""
    pods = [victim(f"v{number}", team=f"t{number}", saved=number) for number in range(ROWS + 10)]
    choice = cheapest_under(gpus(ROWS + 5), pods, scale=scale())
    assert choice is not None
    assert len(choice.victims) == ROWS + 5


def loses_more(unit, missing):
    """Whether pods that go together make the room also without one of them."""
    held = [each.demand.gpus for each in unit]
    return len(unit) > 1 and any(sum(held) - own >= gpus(missing) for own in held)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5), st.sampled_from([None, None, "g", "h"])), max_size=6),
    st.integers(1, 5),
)
@examples(300)
def test_no_other_choice_costs_less(drawn, missing):
    pods = [victim(f"v{n}", size, saved=saved, gang=gang) for n, (size, saved, gang) in enumerate(drawn)]
    units = {}
    for each in pods:
        units.setdefault(each.gang or each.uid, []).append(each)
    ranks = []
    for chosen in chain.from_iterable(combinations(units.values(), count) for count in range(1, len(units) + 1)):
        members = list(chain.from_iterable(chosen))
        freed = sum(each.demand.gpus for each in members)
        if freed >= gpus(missing):
            broken = sum(loses_more(unit, missing) for unit in chosen)
            cost = scale().cost_of(members, gangs=broken)._replace(surplus=freed - gpus(missing))
            ranks.append(cost.ranked(ORDER))
    found = cheapest_under(gpus(missing), pods, scale=scale())
    assert (None if found is None else found.cost.ranked(ORDER)) == min(ranks, default=None)
