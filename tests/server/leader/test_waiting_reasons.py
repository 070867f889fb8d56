"""What users see of pods in line: one Event each, and a reason that is rewritten with its cause alone."""

import asyncio

import pytest

from tests.cluster.support.fake_api import Held
from tests.server.support.harness import until
from tests.server.support.leader_context import leader_context
from tests.server.support.releases import PODS, A, Recorder, staged
from webhook.core.line import gangs
from webhook.core.line.entries import Never
from webhook.core.line.judged_pod import Judged
from webhook.core.model.decision import Retry
from webhook.core.model.reasons import Code, Reason
from webhook.kube.objects import keys
from webhook.kube.pod.waiting import read_waits
from webhook.server.leader import start_loop, waiting_reasons
from webhook.server.leader.waiting_reasons import WaitingReasons


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(start_loop, "POLL_SECONDS", 0.2)


async def test_texts_are_rewritten_only_where_the_cause_is_another_one(tmp_path):
    first = "waits: as it was put, with a place; 2nd in the queue"
    async with staged(tmp_path) as stage:
        stage.hold("holder", 4)
        await until(lambda: stage.world.usage(A).total)
        stage.queue("other", text="waits: no node has room")
        await until(lambda: "holds 4 of 4" in stage.text("other"))
        facts = read_waits(stage.pod("other")["metadata"]["annotations"])
        stage.queue("same", text=first, reason=facts.reason)
        await stage.looks()
        assert stage.text("same") == first
        assert stage.patches() == ["other"]


async def test_a_text_that_its_owner_keeps_changing_costs_no_further_writes(tmp_path):
    async with staged(tmp_path) as stage:
        stage.hold("holder", 4)
        await until(lambda: stage.world.usage(A).total)
        for number in range(5):
            stage.queue(text="waits: \x1b[31m" + "abcde"[number] * 2000)
            await stage.looks(1)
        assert stage.patches() in ([], ["p"])


async def test_a_whole_gang_that_only_borrowers_keep_out_carries_its_size_until_that_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(gangs, "LATE_SECONDS", 0)

    def sizes(stage, *names):
        return [stage.pod(name)["metadata"]["annotations"].get(keys.GANG_WHOLE) for name in names]

    async with staged(tmp_path, guaranteed=2) as stage:
        stage.hold("holder", 4, tier="preemptible")
        await until(lambda: stage.world.usage(A).total)
        for name in ("m0", "m1"):
            stage.queue(name, gang="g", size=2)
        await until(lambda: sizes(stage, "m0", "m1") == ["2", "2"])
        assert "it is inside team team-a's guaranteed share, so 2 GPUs can be reclaimed" in stage.text("m0")
        stage.api.delete(PODS, "m1", namespace="team-a")
        await until(lambda: sizes(stage, "m0") == [None])
        stage.queue("m1", gang="g", size=2)
        await until(lambda: sizes(stage, "m0", "m1") == ["2", "2"])
        stage.api.delete(PODS, "holder", namespace="team-a")
        await until(lambda: not any(map(stage.is_gated, ("m0", "m1"))))
        assert sizes(stage, "m0", "m1") == [None, None]


async def test_each_pod_gets_one_event_that_holds_no_escapes(tmp_path):
    async with staged(tmp_path) as stage:
        stage.hold("holder", 4)
        await until(lambda: stage.world.usage(A).total)
        stage.queue(text="waits: \x1b[2J\n" + "ü" * 2000)
        await stage.looks(20)
        stage.queue(text="waits: again")
        await stage.looks()
        assert [event.reason for event in stage.events] == ["Queued"]
        assert "\x1b" not in stage.events[0].message


async def test_the_pods_of_a_controller_wait_on_it_with_the_same_text(tmp_path):
    async with staged(tmp_path) as stage:
        stage.hold("holder", 4)
        await until(lambda: stage.world.usage(A).total)
        for number in range(3):
            stage.queue(f"p{number}", text="waits: as it was put", controller=("Job", "train"))
        await until(lambda: len(Recorder.owners) == 3)
        told = {
            (each.owner.kind, each.owner.namespace, each.owner.name, bool(each.owner.uid)) for each in Recorder.owners
        }
        assert told == {("Job", "team-a", "train", True)}
        assert {(each.reason, each.series) for each in Recorder.owners} == {("Queued", "Queued")}
        assert {each.message for each in Recorder.owners} == {each.message for each in stage.events}


async def test_a_pod_that_starts_at_once_gets_no_event(tmp_path):
    async with staged(tmp_path) as stage:
        stage.queue()
        await until(lambda: not stage.is_gated())
        await stage.looks(20)
        assert stage.events == []


async def test_a_text_that_meets_another_write_is_written_by_one_patch(tmp_path):
    async with staged(tmp_path) as stage:
        stage.hold("holder", 4)
        await until(lambda: stage.world.usage(A).total)
        held = Held()
        stage.api.faults["patch /api/v1/namespaces/team-a/pods/p"].append(held)
        stage.queue(text="waits: no node has room")
        await until(lambda: not stage.api.faults["patch /api/v1/namespaces/team-a/pods/p"])
        stage.touch()
        held.go.set()
        await until(lambda: "holds 4 of 4" in stage.text())
        await stage.looks()
        assert stage.patches() == ["p"]


async def test_a_cause_that_changes_all_the_time_is_not_written_all_the_time(tmp_path):
    async with staged(tmp_path, leads=False) as stage:
        uid = stage.queue()
        await until(lambda: uid in stage.world.waiting)
        texts = WaitingReasons(leader_context(stage.world, connection=stage.connection, events=Recorder()))
        texts.begin()
        texts.report([uid])

        async def written(cause):
            """Judge the pod, write what is due, and return whether that was its text."""
            waiting = stage.world.waiting.get(uid)
            judged = Judged(
                waiting, waiting.pod, Retry(Reason(Code.RACE_LOST, "x")), Never(), Reason(Code.WAITS_IN_LINE, cause)
            )
            due = texts.due({uid: judged})
            for each in due:
                await texts.write(each)
            await until(lambda: stage.world.waiting.get(uid).text == stage.text())
            return bool(due)

        assert not await written("room"), "it may start at once"
        asyncio.get_running_loop().advance(waiting_reasons.REPORT_SECONDS)
        assert await written("room")
        assert not await written("limit")
        asyncio.get_running_loop().advance(waiting_reasons.CAUSE_SECONDS)
        assert not await written("room"), "it is the present one"
        assert await written("limit")
        assert stage.text() == "waits: limit"


async def test_a_new_term_writes_no_event_for_pods_that_waited_long(tmp_path):
    async with staged(tmp_path, leads=False) as stage:
        stage.hold("holder", 4)
        uid = stage.queue(year=2020)
        await until(lambda: uid in stage.world.waiting and stage.world.usage(A).total)
        stage.lead()
        await stage.looks()
        assert stage.events == []


async def test_reasons_behind_the_head_of_the_line_are_true_after_the_policy_changed(tmp_path):
    async with staged(tmp_path) as stage:
        stage.hold("holder", 4)
        await until(lambda: stage.world.usage(A).total)
        gone = Reason(Code.WAITS_IN_LINE, "namespace {namespace} belongs to no team", {"namespace": "team-a"})
        for name in ("head", "second", "third"):
            stage.queue(name, reason=gone)
        want = "waits: team team-a holds 4 of 4; next when 1 GPU comes back"
        await until(lambda: {stage.text(name) for name in ("head", "second", "third")} == {want})
        await stage.looks()
        changed = [event.message for event in stage.events if event.message == want]
        assert len(changed) == 3


async def test_numbers_alone_are_written_once_a_minute_and_are_no_event(tmp_path):
    async with staged(tmp_path, leads=False) as stage:
        uid = stage.queue(reason=Reason(Code.WAITS_FOR_LIMIT, "{back:GPUs}", {"back": 840_000}))
        await until(lambda: uid in stage.world.waiting)
        reasons = WaitingReasons(leader_context(stage.world, connection=stage.connection, events=Recorder()))
        reasons.begin()
        reasons.report([uid])

        def due(units):
            waiting = stage.world.waiting.get(uid)
            why = Reason(Code.WAITS_FOR_LIMIT, "{back:GPUs}", {"back": units})
            return reasons.due({uid: Judged(waiting, waiting.pod, Retry(why), Never(), why)})

        asyncio.get_running_loop().advance(waiting_reasons.CAUSE_SECONDS)
        assert due(1_680_000) == []
        asyncio.get_running_loop().advance(waiting_reasons.NUMBERS_SECONDS)
        assert due(840_000) == [], "they are written"
        [judged] = due(1_680_000)
        await reasons.write(judged)
        await until(lambda: stage.text() == "waits: 2 GPUs")
        assert stage.events == []


async def test_many_reasons_that_change_at_once_are_written_some_each_second(tmp_path, monkeypatch):
    monkeypatch.setattr(waiting_reasons, "AT_ONCE", 100)
    async with staged(tmp_path, leads=False) as stage:
        uids = [stage.queue(f"p{number}", reason=Reason(Code.WAITS_FOR_ROOM, "room")) for number in range(50)]
        await until(lambda: all(uid in stage.world.waiting for uid in uids))
        reasons = WaitingReasons(leader_context(stage.world, connection=stage.connection, events=Recorder()))
        reasons.begin()
        reasons.report(uids)
        asyncio.get_running_loop().advance(waiting_reasons.NUMBERS_SECONDS)

        def due(why):
            pods = (stage.world.waiting.get(uid) for uid in uids)
            return len(reasons.due({pod.uid: Judged(pod, pod.pod, Retry(why), Never(), why) for pod in pods}))

        other = Reason(Code.WAITS_FOR_LIMIT, "{back:GPUs}", {"back": 840_000})
        assert due(other) == waiting_reasons.IN_A_SECOND
        assert due(other) == 0
        await asyncio.sleep(1)
        assert due(other) == 50 - waiting_reasons.IN_A_SECOND
        asyncio.get_running_loop().advance(waiting_reasons.NUMBERS_SECONDS)
        assert due(Reason(Code.WAITS_FOR_LIMIT, "{back:GPUs}", {"back": 1})) == waiting_reasons.NUMBERS_IN_A_SECOND
