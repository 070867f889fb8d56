"""Entries: single pods, and gangs as one."""

import random

from tests.core.support.queue_sim import queued
from webhook.core.line.entries import Age, entry_of
from webhook.core.model.constraints import Tier


def test_a_pod_is_an_entry_of_its_own():
    pod = queued("x", gpus=3, created=7, user="ada", priority=5)
    got = entry_of([pod])
    assert (got.key, got.pods, got.gpus, got.user, got.priority) == ("uid-x", (pod,), 3, "ada", 5)
    assert got.age == Age(7, "a", "x", "uid-x")


def test_a_gang_sums_its_members_and_is_as_old_as_the_oldest():
    pods = [
        queued(f"w{n}", gpus=n, created=10 - n, gang="run", priority=n, limits=(("team", "a"), ("user", n)))
        for n in (1, 2, 3)
    ]
    got = entry_of(pods)
    assert (got.key, got.gpus, got.age.name, got.priority) == ("run", 6, "w3", 1)
    assert got.limits == (("team", "a"), ("user", 3), ("user", 2), ("user", 1))


def test_a_gang_does_not_depend_on_the_order_of_its_members():
    pods = [queued(f"w{n}", gpus=n, gang="run") for n in range(1, 6)]
    assert {entry_of(random.Random(seed).sample(pods, 5)) for seed in range(20)} == {entry_of(pods)}


def test_gangs_of_the_same_members_fit_alike_and_others_do_not():
    def lot(gang, *gpus):
        return entry_of([queued(f"{gang}{n}", gpus=each, gang=gang) for n, each in enumerate(gpus)]).lot

    assert lot("x", 1, 1, 2) == lot("y", 2, 1, 1)
    assert lot("x", 1, 1, 2) != lot("x", 2, 2)


def test_a_gang_runs_wherever_any_member_may():
    a, b = frozenset("a"), frozenset("b")
    two = [queued("x", gang="run", sites=a), queued("y", gang="run", sites=b)]
    assert entry_of(two).lot.sites == a | b
    assert entry_of([*two, queued("z", gang="run")]).lot.sites is None


def test_only_what_may_borrow_and_be_evicted_can_run_ahead():
    assert entry_of([queued("x")]).can_run_ahead
    assert entry_of([queued("x", requested_tier=Tier.PREEMPTIBLE)]).can_run_ahead
    assert not entry_of([queued("x", requested_tier=Tier.GUARANTEED)]).can_run_ahead
    assert not entry_of([queued("x", is_evictable=False)]).can_run_ahead
    both = [queued("x", gang="run"), queued("y", gang="run", requested_tier=Tier.GUARANTEED)]
    assert not entry_of(both).can_run_ahead
    assert not entry_of([queued("x", gang="run"), queued("y", gang="run", is_evictable=False)]).can_run_ahead
