"""What the victims of a node lose at least, however often it was asked and changed before."""

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
    """Unit by unit: those saved last go first, and what is saved in the future is not lost."""
    units = sorted((saved_at for saved_at, held in saves for _ in range(held)), reverse=True)
    return sum(max(0, now - saved_at) for saved_at in units[:gpus])


@given(STEPS)
def test_the_least_loss_is_that_of_the_units_saved_last(steps):
    yard = NodeVictims()
    yard.save(50, 2)
    for what, first, second in steps:
        if what == "save":
            yard.save(first, second)
        elif what == "unsave" and len(yard.saves) > 1:
            yard.unsave(*yard.saves[first % len(yard.saves)])
        elif what == "ask":
            assert yard.least_loss(first, NOW + second) == least(yard.saves, first, NOW + second)
