"""How long an entry that finds no room holds back those behind it."""

from webhook.core.line.entries import IDLE_SECONDS, HoldBacks, NoRoom
from webhook.core.model.amounts import UNLIMITED

DAY = 86_400
FULL, IDLE = NoRoom(), NoRoom(has_devices=True)


def asked(hold_backs, verdict, now, bound=DAY):
    hold_backs.begin()
    return hold_backs.is_over("key", verdict, now=now, bound_seconds=bound)


def test_it_ends_after_the_bound_of_policy():
    hold_backs = HoldBacks()
    assert not asked(hold_backs, FULL, 100)
    assert not asked(hold_backs, FULL, 100 + DAY - 1)
    assert asked(hold_backs, FULL, 100 + DAY)


def test_without_a_bound_it_ends_only_where_gpus_are_kept_idle():
    hold_backs = HoldBacks()
    assert not asked(hold_backs, FULL, 0, UNLIMITED)
    assert not asked(hold_backs, FULL, 10**9, UNLIMITED)
    assert not asked(hold_backs, IDLE, 10**9, UNLIMITED)
    assert asked(hold_backs, IDLE, 10**9 + IDLE_SECONDS, UNLIMITED)


def test_gpus_that_are_taken_meanwhile_begin_the_time_again():
    hold_backs = HoldBacks()
    asked(hold_backs, IDLE, 0)
    asked(hold_backs, FULL, IDLE_SECONDS - 1)
    assert not asked(hold_backs, IDLE, IDLE_SECONDS + 1)


def test_an_entry_that_did_not_wait_in_a_pass_begins_again():
    hold_backs = HoldBacks()
    asked(hold_backs, FULL, 0)
    hold_backs.begin()
    assert not asked(hold_backs, FULL, DAY)
    assert hold_backs.is_over("other", FULL, now=DAY, bound_seconds=DAY) is False


def test_asked_twice_in_a_pass_it_says_the_same():
    hold_backs = HoldBacks()
    asked(hold_backs, FULL, 0)
    assert asked(hold_backs, FULL, DAY)
    assert hold_backs.is_over("key", FULL, now=DAY, bound_seconds=DAY)
