"""Room that persons share: who has little loses none of it to one who has much."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.addons.page.access.access import KeptByPerson, yields_to

PERSONS = st.sampled_from("abcde")


@given(st.lists(st.tuples(PERSONS, st.integers(0, 30)), max_size=120))
@examples(200)
def test_of_one_and_in_all_no_more_are_kept_and_who_has_few_keeps_them(steps):
    kept = KeptByPerson(in_all=10, of_one=4)
    person_of = {}
    for person, number in steps:
        key = f"{person}{number}"
        before = Counter(person_of[each] for each in person_of if kept.get(each) is not None)
        kept.set(key, person, key)
        person_of[key] = person
        after = Counter(person_of[each] for each in person_of if kept.get(each) is not None)
        assert kept.get(key) == key
        assert len(kept) == after.total() <= 10
        assert max(after.values()) <= 4
        for other in set("abcde") - {person}:
            lost = before[other] - after[other]
            assert lost <= 1
            if lost:
                assert before[other] > before[person], "one who had more gave it up"


def test_who_would_have_as_many_gets_none_of_them():
    assert yields_to("new", {"a": 1, "b": 1}) is None
    assert yields_to("new", {"a": 2, "b": 1}) == "a"
    assert yields_to("b", {"a": 3, "b": 2}) is None
    assert yields_to("new", {}) is None


def test_one_that_is_used_stays():
    kept = KeptByPerson(in_all=10, of_one=2)
    kept.set("first", "a", 1)
    kept.set("second", "a", 2)
    assert kept.get("first") == 1
    kept.set("third", "a", 3)
    assert (kept.get("first"), kept.get("second"), kept.get("third")) == (1, None, 3)
    kept.pop("first")
    kept.pop("first")
    assert len(kept) == 1
