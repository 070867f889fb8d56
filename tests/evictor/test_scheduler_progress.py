"""Unused room: its pod is at fault once kube-scheduler has come to it, and never while kube-scheduler is behind."""

import asyncio

import pytest

from tests.core.support.reclaim_pods import reclaim_pod
from tests.evictor.support.stage import PODS, fill
from webhook.core.reclaim.evictions import Attempts
from webhook.evictor.hold_manager import BACKOFF_SECONDS, HOLD_SECONDS, IDLE_SECONDS, LONGEST_SECONDS, SchedulerProgress
from webhook.evictor.unevictable import TRIES

GIVEN_UP = 30 + HOLD_SECONDS
"""When an unused hold ends: after the grace period of the victims."""

LONGEST = 600 + LONGEST_SECONDS
"""When a hold ends whatever happens: after the longest grace period that policy allows."""

POD = reclaim_pod("never", on=None, team="team-b", tier="guaranteed")
STEP_SECONDS = 5
LATER = int(BACKOFF_SECONDS) + 1


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def attempts():
    return Attempts()


@pytest.fixture
def progress(clock, attempts):
    """The room of node n0 has been free for as long as the clock runs."""
    found = SchedulerProgress(attempts, clock=clock)
    found.set_free("n0", is_free=True)
    return found


def come(progress, attempts, *, came, priority=0, scheduler=""):
    attempts.add(scheduler=scheduler, priority=priority, came=int(came))
    progress.look()


def test_kube_scheduler_that_comes_only_to_older_pods_is_behind(clock, attempts, progress):
    for _ in range(20):
        clock.now += IDLE_SECONDS - 1
        come(progress, attempts, came=900)
        assert progress.is_behind("n0", POD)


@pytest.mark.parametrize(("priority", "want"), [(0, False), (-1, False), (1, True)])
def test_a_pod_was_passed_over_once_kube_scheduler_came_to_a_later_one_of_no_higher_priority(
    clock, attempts, progress, priority, want
):
    come(progress, attempts, came=clock.now + LATER, priority=priority)
    assert progress.is_behind("n0", POD) is want


def test_a_pod_that_rests_after_a_try_without_success_is_not_passed_over(clock, attempts, progress):
    come(progress, attempts, came=clock.now + BACKOFF_SECONDS)
    assert progress.is_behind("n0", POD)


def test_kube_scheduler_that_comes_to_no_pod_is_not_behind(clock, progress):
    clock.now += IDLE_SECONDS
    assert not progress.is_behind("n0", POD)


def test_what_another_scheduler_does_says_nothing(clock, attempts, progress):
    come(progress, attempts, came=clock.now + LATER, scheduler="other")
    assert progress.is_behind("n0", POD)
    clock.now += IDLE_SECONDS
    come(progress, attempts, came=900, scheduler="other")
    assert not progress.is_behind("n0", POD)


def test_a_pod_whose_room_is_not_free_is_never_at_fault(clock, progress):
    progress.set_free("n0", is_free=False)
    clock.now += 10 * IDLE_SECONDS
    assert progress.is_behind("n0", POD)


def only(node):
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


async def ask(stage):
    """Have room made on n0 for a pod that fits nowhere else, and that is not placed."""
    before = stage.real_evictions()
    fill(stage, "n0")
    await stage.until(lambda: stage.real_evictions() == before + 4)


async def try_others(stage, *, seconds, created, fit=True):
    """Place a pod on another node every few seconds, as kube-scheduler does, or find no room for it."""
    end = stage.now() + seconds
    while stage.now() < end:
        stage.unseen("other", created=int(created()))
        await asyncio.sleep(STEP_SECONDS / 2)
        stage.bind("other", "n1") if fit else stage.find_no_room("other")
        await asyncio.sleep(STEP_SECONDS / 2)
        stage.api.delete(PODS, "other", namespace="team-b")


def never(stage):
    """Add a pod of four GPUs that only one node could hold; no test places it by itself."""
    stage.node("n1")
    stage.asker("never", gpus=4, affinity=only("n0"))


@pytest.mark.parametrize("fit", [True, False], ids=["it places others", "it finds no room for others"])
async def test_room_is_kept_while_kube_scheduler_is_behind(stage, fit):
    began = stage.now()
    never(stage)
    async with stage.leader() as manager:
        await ask(stage)
        await try_others(stage, seconds=5 * GIVEN_UP, created=lambda: began, fit=fit)
        assert stage.room_of("never") == "n0"
        stage.bind("never", "n0")
        await stage.until(lambda: not stage.taints("n0"))
        assert not manager.waiting.paused()
    assert "CannotReclaim" not in stage.reasons()


async def waste(stage, wait):
    """Have room made that is not used while a call of `wait` goes on, until the pod is left alone."""
    async with stage.leader() as manager:
        for tries in range(1, TRIES + 1):
            await ask(stage)
            await wait()
            assert not stage.taints("n0"), tries
            assert manager.waiting.paused() or tries < TRIES
            await asyncio.sleep(50)  # its own pause
    assert "CannotReclaim" in stage.reasons()


@pytest.mark.parametrize("fit", [True, False], ids=["others are placed", "a tenant creates pods that fit nowhere"])
async def test_a_pod_that_others_overtake_is_at_fault(stage, fit):
    never(stage)
    await waste(stage, lambda: try_others(stage, seconds=GIVEN_UP + 1, created=stage.now, fit=fit))


async def test_pods_that_only_wait_do_not_make_kube_scheduler_look_behind(stage):
    never(stage)
    for number in range(200):
        stage.unseen(f"waits-{number}", created=0)
    await waste(stage, lambda: asyncio.sleep(GIVEN_UP + 1))


@pytest.mark.slow
async def test_old_pods_that_start_one_by_one_prolong_a_hold_only_to_its_limit(stage):
    """A tenant may keep pods back for long and let one start now and then."""
    never(stage)
    async with stage.leader():
        await ask(stage)
        await try_others(stage, seconds=LONGEST - STEP_SECONDS, created=lambda: 1)
        assert stage.taints("n0")
        await try_others(stage, seconds=30, created=lambda: 1)
        assert not stage.taints("n0")
