"""Victims that can never be evicted: others go, and they are planned for ever more rarely."""

import asyncio

import pytest

from tests.cluster.support.fake_api import Answer, Slow
from tests.core.support import make
from tests.evictor.support.stage import PODS, POOR, fill
from tests.scenarios import serving
from webhook.cluster.writes.evictions import EvictionObstacle, Refused
from webhook.core.model.policy import ReclaimRules
from webhook.core.reclaim.holds import EvictionTarget
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.evictor import hold_manager, unevictable
from webhook.evictor.unevictable import FIRST_SECONDS, LONGEST_BUDGET_SECONDS, LONGEST_SECONDS, Unevictable
from webhook.kube.nodes.holds import rfc3339

HALF_AN_HOUR = 1_800
NOTICE = make.policy(*POOR.teams, reclaim=ReclaimRules(notice_seconds=30))


def break_pod(stage, name, *, posts=None, deletes=None):
    """Have the API server answer so whenever a pod is to be evicted, and to be deleted."""
    path = f"/api/v1/namespaces/team-a/pods/{name}"
    for verb, where, fault in (("post", f"{path}/eviction", posts), ("delete", path, deletes)):
        if fault is not None:
            stage.api.faults[f"{verb} {where}"].extend([fault] * 1_000)


def asked_for(stage, name):
    """How often the API server was asked to evict a pod for real or not, and to delete it."""
    path = f"/api/v1/namespaces/team-a/pods/{name}"
    return sum(
        asked.path in (path, f"{path}/eviction") and asked.verb in ("post", "delete") for asked in stage.api.asked
    )


def announced(stage, name):
    return sum(event.reason == "EvictionPlanned" and event.about.name == name for event in stage.events)


async def test_a_borrower_whose_eviction_fails_is_deleted(stage):
    stage.node("n0")
    stage.borrower("a", on="n0", gpus=4)
    break_pod(stage, "a", posts=Answer(500))
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: stage.names() == {"b"})
    assert stage.reasons().count("Reclaimed") == 1


async def test_a_borrower_whose_changes_overtake_its_eviction_is_deleted_and_no_other_goes(stage):
    stage.node("n0")
    stage.node("n1")
    stage.borrower("stormy", on="n0", gpus=4, created=rfc3339(int(stage.now())))
    stage.borrower("good", on="n1", gpus=4, created=rfc3339(int(stage.now()) - 3_600))
    stage.api.faults["post /api/v1/namespaces/team-a/pods/stormy/eviction"].append(Answer(409))
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: stage.names() == {"good", "b"})
    (text,) = [event.message for event in stage.events if event.reason == "Reclaimed" and event.about.name == "stormy"]
    assert text.endswith("; deleted, since it changed faster than the API server could evict it")
    body = stage.metrics.expose().body.decode()
    assert serving.total(body, "fairgate_reclaim_evictions_total", outcome="overtaken") == 1


async def test_a_borrower_under_a_budget_is_not_deleted_before_budgets_end(stage):
    """The API server's failure may hide that the budget does not allow it."""
    stage.node("n0")
    stage.borrower("a", on="n0", gpus=4)
    stage.budget()
    break_pod(stage, "a", posts=Answer(500))
    async with stage.leader():
        stage.asker("b")
        await asyncio.sleep(299)
        assert stage.names() == {"a", "b"}
        await stage.until(lambda: stage.names() == {"b"}, seconds=400)


@pytest.mark.parametrize(
    ("posts", "deletes"),
    [(Answer(500), Answer(500)), (Answer(500), Answer(403)), (Answer(403), None), (Answer(409), None)],
    ids=["neither way works", "a policy forbids the deletion", "a policy forbids it", "it changes all the time"],
)
async def test_another_borrower_goes_instead_of_one_that_cannot(stage, posts, deletes):
    stage.node("n0")
    stage.node("n1")
    stage.borrower("bad", on="n0", gpus=4)
    stage.borrower("good", on="n1", gpus=4, created=rfc3339(int(stage.now()) - 3_600))
    break_pod(stage, "bad", posts=posts, deletes=deletes)
    async with stage.leader(NOTICE):
        began = stage.now()
        stage.asker("b")
        await stage.until(lambda: stage.names() == {"bad", "b"}, seconds=200)
        assert stage.now() - began < 2 * 30 + hold_manager.PATIENCE_SECONDS + 5


async def test_one_that_never_goes_is_announced_and_tried_ever_more_rarely(stage):
    stage.node("n0")
    stage.borrower("bad", on="n0", gpus=4)
    break_pod(stage, "bad", posts=Answer(500), deletes=Answer(500))
    async with stage.leader(NOTICE):
        stage.asker("b")
        await asyncio.sleep(HALF_AN_HOUR)
    assert announced(stage, "bad") == 1, "it is tried in a dry run before it is announced again"
    assert asked_for(stage, "bad") == 2 * 5, "by both ways after 0, 1, 3, 7 and 15 minutes"


async def test_one_whose_dry_run_says_nothing_is_planned_ever_more_rarely(stage):
    """Only a real request finds out that a pod is too large for etcd; this one has nothing to lose."""
    stage.node("n0")
    stage.borrower("bad", on="n0", gpus=4)
    stage.api.object_bytes = 100
    async with stage.leader(NOTICE):
        stage.asker("b")
        stage.api.object_bytes = 1_000_000
        stage.api.objects[PODS]["team-a/bad"]["spec"]["nodeSelector"] = {"x": "x" * 1_000_000}
        await asyncio.sleep(HALF_AN_HOUR)
    assert announced(stage, "bad") == 5


async def test_many_that_cannot_go_delay_the_others_by_seconds(stage):
    """A foreign webhook refuses forty pods of a namespace: they are tried together, in dry runs."""
    for number in range(10):
        fill(stage, f"n{number}")
        for pod in range(4):
            break_pod(stage, f"n{number}-{pod}", posts=Answer(500), deletes=Answer(500))
    stage.node("m")
    stage.borrower("dear", on="m", gpus=4, created=rfc3339(int(stage.now()) - 3_600))
    async with stage.leader(NOTICE):
        began = stage.now()
        stage.asker("b")
        await stage.until(lambda: "dear" not in stage.names(), seconds=90)
        assert stage.now() - began < 30 + 30 + 10, "one notice of a pod that does not go, and one of one that does"
    assert sum(event.reason == "EvictionPlanned" for event in stage.events) == 2


@pytest.mark.slow
async def test_a_webhook_that_never_answers_does_not_stop_the_loop(stage):
    fill(stage, "n0")
    for pod in range(4):
        break_pod(stage, f"n0-{pod}", posts=Slow(1_000), deletes=Slow(1_000))
    stage.node("m")
    stage.borrower("dear", on="m", gpus=4, created=rfc3339(int(stage.now()) - 3_600))
    async with stage.leader():
        began = stage.now()
        stage.asker("b")
        await stage.until(lambda: "dear" not in stage.names(), seconds=300)
        assert stage.now() - began < 2 * 35 + hold_manager.PATIENCE_SECONDS + 85


async def test_a_notice_that_cannot_be_written_delays_nothing(stage):
    fill(stage, "n0")
    for pod in range(4):
        stage.api.faults[f"patch /api/v1/namespaces/team-a/pods/n0-{pod}"].extend([Answer(500)] * 1_000)
    async with stage.leader(NOTICE):
        began = stage.now()
        stage.asker("b", gpus=2)
        await stage.until(lambda: stage.real_evictions() == 2, seconds=60)
        assert stage.now() - began < 33
        patched = sum(asked.verb == "patch" and "/n0-" in asked.path for asked in stage.api.asked)
        assert patched == 2


async def test_a_notice_that_cannot_be_withdrawn_keeps_no_other(stage):
    fill(stage, "n0")

    def announcing():
        return [
            pod["metadata"]["name"]
            for pod in stage.api.objects[PODS].values()
            if "fairgate.dev/evict-at" in (pod["metadata"].get("annotations") or {})
        ]

    async with stage.leader(NOTICE):
        stage.asker("b", gpus=4)
        await stage.until(lambda: len(announcing()) == 4)
        stage.api.faults["patch /api/v1/namespaces/team-a/pods/n0-0"].extend([Answer(500)] * 1_000)
        stage.api.delete(PODS, "b", namespace="team-b")
        await stage.until(lambda: announcing() == ["n0-0"])


class Table:
    """The table of failures with a clock and no pods of a cluster."""

    def __init__(self):
        self.now = 0.0
        self.table = Unevictable(ReclaimIndex(ReclaimRules()), lambda: self.now)

    def fail(self, uid, obstacle=EvictionObstacle.FAILURE, **target):
        return self.table.leave_alone(EvictionTarget(uid, "team-a", uid, "b", 0, **target), Refused("why", obstacle))


def test_the_pause_doubles_up_to_hours():
    table = Table()
    pauses = [table.fail("a") for _ in range(12)]
    assert pauses[:4] == [FIRST_SECONDS, 2 * FIRST_SECONDS, 4 * FIRST_SECONDS, 8 * FIRST_SECONDS]
    assert pauses[-1] == LONGEST_SECONDS
    assert [table.fail("b", EvictionObstacle.BUDGET) for _ in range(6)][-1] == LONGEST_BUDGET_SECONDS


def test_a_pod_is_left_alone_until_its_pause_is_over():
    table = Table()
    table.fail("a")
    assert (table.table.paused(), table.table.immovable(), table.table.next_end()) == ({"a"}, {"a"}, FIRST_SECONDS)
    table.now = FIRST_SECONDS
    assert (table.table.paused(), table.table.immovable(), table.table.next_end()) == (set(), set(), None)


@pytest.mark.parametrize(("is_past_budgets", "want"), [(False, set()), (True, {"a"})])
def test_a_budget_keeps_a_pod_only_while_budgets_count(is_past_budgets, want):
    table = Table()
    table.fail("a", EvictionObstacle.BUDGET, is_past_budgets=is_past_budgets)
    assert (table.table.paused(), table.table.immovable()) == ({"a"}, want)


def test_the_table_is_bounded_and_forgets_the_oldest(monkeypatch):
    monkeypatch.setattr(unevictable, "MOST", 3)
    table = Table()
    for uid in ("a", "b", "c", "a", "d"):
        table.fail(uid)
    assert table.table.paused() == {"a", "c", "d"}
    assert table.fail("a") == 4 * FIRST_SECONDS


def test_a_pod_that_is_gone_is_forgotten():
    table = Table()
    table.fail("a")
    table.table.tidy()
    assert (table.table.paused(), table.table.lasting()) == (set(), [])


def test_what_no_budget_explains_is_listed_the_latest_first():
    table = Table()
    table.fail("a")
    table.fail("b", EvictionObstacle.BUDGET)
    table.fail("c", EvictionObstacle.POLICY)
    assert [each.name for each in table.table.lasting()] == ["c", "a"]
    assert table.table.counts() == {"failure": 1, "budget": 1, "policy": 1, "stuck": 0}
    assert table.table.texts() == ["team-a/c: why", "team-a/a: why"]


async def test_the_evictor_says_which_borrowers_cannot_be_evicted(stage):
    stage.node("n0")
    stage.borrower("bad", on="n0", gpus=4)
    break_pod(stage, "bad", posts=Answer(500), deletes=Answer(500))
    async with stage.leader() as manager:
        stage.asker("b")
        await stage.until(lambda: "EvictionRefused" in stage.reasons())
        (text,) = manager.unevictable.texts()
        assert text.startswith("team-a/bad: cannot delete pods: 500")
        await stage.until(lambda: gauge(stage, "failure") == 1)
        (event,) = [each for each in stage.events if each.reason == "EvictionRefused"]
        assert "the API server fails to evict it, and to delete it" in event.message
        assert "left alone for 60 s" in event.message


async def test_a_borrower_that_does_not_end_is_stuck_and_another_one_goes(stage):
    """Such as by a kubelet that is gone: its room is not counted on."""
    stage.node("n0")
    stage.node("n1")
    stage.borrower("stuck", on="n0", gpus=4)
    body = stage.api.objects[PODS]["team-a/stuck"]
    ended = rfc3339(int(stage.now()) - 100)
    body["metadata"] |= {"deletionTimestamp": ended, "deletionGracePeriodSeconds": 30}
    stage.borrower("other", on="n1", gpus=4)
    async with stage.leader() as manager:
        stage.asker("b")
        await stage.until(lambda: "other" not in stage.names())
        assert gauge(stage, "stuck") == 1
        assert manager.unevictable.texts() == ["team-a/stuck: it terminates on node n0, and its grace period is over"]


def gauge(stage, obstacle):
    body = stage.metrics.expose().body.decode()
    return serving.total(body, "fairgate_reclaim_unevictable_pods", obstacle=obstacle)
