"""The charges of a team and their sums."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.model.decision import Charge
from webhook.core.model.names import ANY_MODEL, GpuModel, TeamName, Uid, User
from webhook.core.model.tier import Tier
from webhook.core.quota.holders import Holder
from webhook.core.quota.usage import Entry, TeamUsage

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
    return Entry(Charge(TeamName("a"), tier, units, model, user), name, **more)


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
