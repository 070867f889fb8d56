"""The least loss of a node's victims, after any number of queries and changes."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.scenes import victim
from webhook.core.reclaim.victims import NodeVictims

NOW = 100
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("save"), st.integers(0, 120), st.integers(1, 4)),
        st.tuples(st.just("unsave"), st.integers(0, 9), st.none()),
        st.tuples(st.just("ask"), st.integers(0, 12), st.integers(0, 20)),
    ),
    min_size=1,
    max_size=25,
)


def saved(name, saved_at, units):
    """A victim of so many GPU units."""
    made = victim(name, saved=saved_at, started=saved_at // 2, team=f"team-{saved_at % 3}")
    return made._replace(demand=replace(made.demand, gpus=units))


def least(saves, gpus, now):
    """Unit by unit: those saved last are evicted first, and work saved in the future is not lost."""
    units = sorted((saved_at for saved_at, held in saves for _ in range(held)), reverse=True)
    return sum(max(0, now - saved_at) for saved_at in units[:gpus])


@given(STEPS)
def test_the_least_loss_is_that_of_the_units_saved_last(steps):
    node_victims = NodeVictims()
    there = [saved("first", 50, 2)]
    node_victims.add(there[0])
    for number, (what, first, second) in enumerate(steps):
        if what == "save":
            there.append(saved(f"v{number}", first, second))
            node_victims.add(there[-1])
        elif what == "unsave" and len(there) > 1:
            node_victims.remove(there.pop(first % len(there)))
        elif what == "ask":
            assert node_victims.least_loss(first, NOW + second) == least(node_victims.saves, first, NOW + second)
        assert node_victims.gpus == sum(each.demand.gpus for each in there)
        assert node_victims.sizes == Counter(each.demand.gpus for each in there)
        assert node_victims.latest == max(each.started_at for each in there)
        assert node_victims.teams == {each.team for each in there}
