from fractions import Fraction

from webhook.core.model.amounts import add_to, drop_member


def test_a_key_is_there_while_its_sum_is_not_0():
    sums = {}
    add_to(sums, "a", 2)
    add_to(sums, "a", -1)
    assert sums == {"a": 1}
    add_to(sums, "a", -1)
    assert not sums


def test_nothing_added_to_a_new_key_leaves_no_key():
    sums = {}
    add_to(sums, "a", 0)
    assert not sums


def test_fractions_are_added_exactly():
    sums = {"a": Fraction(1, 3)}
    add_to(sums, "a", Fraction(-1, 3))
    assert not sums


def test_a_key_goes_with_its_last_member():
    index = {"a": {1: None, 2: None}}
    drop_member(index, "a", 1)
    assert index == {"a": {2: None}}
    drop_member(index, "a", 2)
    assert not index
