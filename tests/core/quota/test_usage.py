"""The charges of a team and their sums."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.model.amounts import ANY_MODEL, GpuModel, TeamName, Uid, User
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.quota.shares import Holder
from webhook.core.quota.usage import TeamUsage, UsageEntry

A100, T4 = GpuModel("A100"), GpuModel("T4")
NAMES = ("ns/Job/a", "ns/Job/b", "ns/Pod/c", "ns/Pod/d", "ns/Pod/e")


def test_a_pod_that_is_seen_after_it_was_admitted_changes_no_text():
    book = TeamUsage()
    texts = []
    for is_reserved in (True, False):
        book.charge(Uid("p"), entry("ns/Pod/p", is_reserved=is_reserved))
        texts.append((book.total, book.largest(3)))
    assert texts[0] == texts[1]


def entry(name, units=1, *, user=None, model=None, tier=Tier.GUARANTEED, **more):
    return UsageEntry(Charge(TeamName("a"), tier, units, model, user), name, **more)


CHANGES = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.sampled_from(NAMES),
        st.integers(0, 4),
        st.sampled_from([None, User("u"), User("v")]),
        st.sampled_from([None, A100, T4, ANY_MODEL]),
        st.sampled_from(Tier),
    ),
    max_size=40,
)


@given(CHANGES)
def test_the_holders_are_those_of_a_plain_sum(changes):
    book, entries = TeamUsage(), {}
    for uid, name, units, user, model, tier in changes:
        if units:
            entries[uid] = entry(name, units, user=user, model=model, tier=tier)
            book.charge(Uid(str(uid)), entries[uid])
        else:
            entries.pop(uid, None)
            book.release(Uid(str(uid)))
        charged = [(each.holder, each.charge) for each in entries.values()]
        assert pairs(book.largest(9)) == plain(charged)
        assert pairs(book.largest(9, user=User("u"))) == plain(c for c in charged if c[1].user == "u")
        on_model = plain(c for c in charged if c[1].model in (A100, ANY_MODEL))
        assert pairs(book.largest(9, model=A100)) == on_model
        assert pairs(book.largest(9, is_guaranteed=True)) == plain(c for c in charged if c[1].tier is Tier.GUARANTEED)
        assert book.largest_holders(2) == plain(charged)[:2]


def pairs(found):
    return [(holder.name, holder.gpus) for holder in found]


def plain(charged):
    sums = {}
    for name, charge in charged:
        sums[name] = sums.get(name, 0) + charge.gpus
    return sorted(sums.items(), key=lambda item: (-item[1], item[0]))


def test_an_unknown_user_or_model_has_no_holders():
    book = TeamUsage()
    book.charge(Uid("p"), entry("ns/Pod/p"))
    assert book.largest(3, user=User("x")) == book.largest(3, model=A100) == []
    assert book.largest(3) == [Holder("ns/Pod/p", 1)]


ENTRIES = st.builds(
    entry,
    st.sampled_from(NAMES),
    st.integers(1, 9),
    user=st.sampled_from([None, User("u"), User("v")]),
    model=st.sampled_from([None, A100, T4, ANY_MODEL]),
    tier=st.sampled_from(Tier),
    is_reserved=st.booleans(),
    is_unlabeled=st.booleans(),
    is_waiting=st.booleans(),
)


@given(st.lists(st.tuples(st.integers(0, 5).map(lambda number: Uid(f"p{number}")), st.none() | ENTRIES), max_size=30))
def test_sums_are_those_of_the_entries(changes):
    book, entries = TeamUsage(), {}

    def units(counts=lambda _: True):
        return sum(each.charge.gpus for each in entries.values() if counts(each))

    for uid, change in changes:
        if change is None:
            book.release(uid)
            entries.pop(uid, None)
        else:
            book.charge(uid, change)
            entries[uid] = change
        assert dict(book.entries()) == entries
        assert (len(book), book.get(uid)) == (len(entries), change)
        assert book.total == units() == book.used + book.reserved == book.guaranteed + book.preemptible
        assert book.reserved == units(lambda each: each.is_reserved)
        assert book.waiting == units(lambda each: each.is_waiting)
        assert book.guaranteed == units(lambda each: each.charge.tier is Tier.GUARANTEED or each.is_unlabeled)
        assert book.user(User("u")) == units(lambda each: each.charge.user == "u")
        assert book.model(A100) == units(lambda each: each.charge.model in (A100, ANY_MODEL))
        assert book.guaranteed_model(A100) == units(
            lambda each: each.charge.model == A100 and each.counts_as_guaranteed
        )
