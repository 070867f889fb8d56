"""The least loss of a node's victims, after any number of queries and changes."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.reclaim.victim import NodeVictims

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


def least(saves, gpus, now):
    """Unit by unit: those saved last are evicted first, and work saved in the future is not lost."""
    units = sorted((saved_at for saved_at, held in saves for _ in range(held)), reverse=True)
    return sum(max(0, now - saved_at) for saved_at in units[:gpus])


@given(STEPS)
def test_the_least_loss_is_that_of_the_units_saved_last(steps):
    node_victims = NodeVictims()
    node_victims.save(50, 2)
    for what, first, second in steps:
        if what == "save":
            node_victims.save(first, second)
        elif what == "unsave" and len(node_victims.saves) > 1:
            node_victims.unsave(*node_victims.saves[first % len(node_victims.saves)])
        elif what == "ask":
            assert node_victims.least_loss(first, NOW + second) == least(node_victims.saves, first, NOW + second)
