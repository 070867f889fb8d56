"""A process's messages to real receivers, in virtual time."""

import asyncio
import itertools
from dataclasses import replace

import pytest

from tests.addons.messages.made import BEHIND, EVICTIONS, TROUBLE, evicted
from tests.addons.messages.process import Process
from tests.addons.messages.receiver import OK, receiving, status
from webhook.addons.messages.notifier import FLUSH_SECONDS, PROBE_SECONDS
from webhook.core.model.policy_addons import NotifyKind, NotifyTemplate

STATES = {TROUBLE: BEHIND}


@pytest.fixture
def stage(tmp_path, authority):
    return Process(tmp_path, authority)


async def test_each_target_gets_what_it_wants_in_its_format(stage, authority):
    async with receiving(authority) as program, receiving(authority) as alertmanager:
        only = frozenset({NotifyKind.EVICTIONS})
        targets = [
            stage.target(program, "program"),
            stage.target(alertmanager, "am", template=NotifyTemplate.ALERTMANAGER, kinds=only),
        ]
        async with stage.running(*targets) as notifier:
            notifier.note(EVICTIONS, evicted())
            notifier.set_states(STATES)
            await asyncio.sleep(30)
            assert notifier.counts()["program", "sent"] == 2
            assert notifier.states() == {"program": (0, 0), "am": (0, 0)}
    assert [each.message["groupLabels"] for each in program.got] == [
        {"alertname": "FairgateTrouble", "cluster": "east"},
        {"alertname": "FairgateEvictions", "cluster": "east"},
    ]
    [request] = alertmanager.got
    assert request.message[0]["annotations"]["summary"] == "team vision: 1 pod evicted"


async def test_a_target_that_hangs_delays_no_other(stage, authority):
    async def hang(_writer):
        await asyncio.sleep(3600)

    async with (
        receiving(authority, hang) as slow,
        receiving(authority) as fast,
        stage.running(stage.target(slow, "slow"), stage.target(fast, "fast")) as notifier,
    ):
        began = asyncio.get_running_loop().time()
        for _ in range(1000):
            notifier.note(EVICTIONS, evicted())
        assert asyncio.get_running_loop().time() == began, "who reports does not wait"
        await asyncio.sleep(8)
        assert [each.message["commonAnnotations"]["summary"] for each in fast.got] == [
            "team vision: 1,000 pods evicted"
        ]
        await asyncio.sleep(100)
        assert notifier.problems() == ["target slow: no answer within 10 s"]


async def test_what_fails_is_sent_again_later_and_later_as_it_was(stage, authority):
    async with receiving(authority, status(503)) as receiver, stage.running(stage.target(receiver)) as notifier:
        clock, at = asyncio.get_running_loop().time, []
        notifier.note(EVICTIONS, evicted())
        for _ in range(600):
            before = len(receiver.got)
            await asyncio.sleep(1)
            at += [clock()] * (len(receiver.got) - before)
        assert notifier.problems() == ["target t: HTTP 503"]
        assert notifier.states()["t"] == (1, 1)
        pauses = [later - earlier for earlier, later in itertools.pairwise(at)]
        assert 5 <= len(at) <= 12
        assert pauses[-1] > 4 * pauses[0]
        assert len({each.message["alerts"][0]["fingerprint"] for each in receiver.got}) == 1
        receiver.answer = OK
        await asyncio.sleep(300)
        assert notifier.problems() == []
        counts = notifier.counts()
        assert (counts["t", "sent"], counts["t", "failed"], counts["t", "dropped"]) == (1, len(at), 0)
    assert stage.logged().count("notify target not reached") == 1
    assert stage.logged().count("notify target reached") == 1


async def test_what_the_target_rejects_is_dropped_and_the_next_message_is_sent(stage, authority):
    async with receiving(authority, status(400)) as receiver, stage.running(stage.target(receiver)) as notifier:
        notifier.note(EVICTIONS, evicted("first"))
        await asyncio.sleep(20)
        receiver.answer = OK
        notifier.note(EVICTIONS, evicted("second"))
        await asyncio.sleep(120)
        assert notifier.counts()["t", "dropped"] == 1
    first, second = (each.message["commonAnnotations"]["description"] for each in receiver.got)
    assert ("first" in first, "second" in second) == (True, True)


async def test_retry_after_is_respected(stage, authority):
    async with (
        receiving(authority, status(429, "Retry-After: 200")) as receiver,
        stage.running(stage.target(receiver)) as notifier,
    ):
        notifier.note(EVICTIONS, evicted())
        await asyncio.sleep(190)
        assert len(receiver.got) == 1
        await asyncio.sleep(30)
        assert len(receiver.got) == 2


async def test_a_target_that_cannot_be_reached_shows_before_there_is_something_to_say(stage, authority):
    async with receiving(authority) as receiver:
        good, bad = stage.target(receiver, "good"), stage.target(receiver, "bad", header=None, ca_file="absent")
        async with stage.running(good, bad) as notifier:
            await asyncio.sleep(5)
            assert notifier.problems() == [
                "target bad: file absent of the folder of secrets: No such file or directory"
            ]
            (stage.secrets / "absent").write_bytes(authority.certificate.read_bytes())
            await asyncio.sleep(PROBE_SECONDS + 5)
            assert notifier.problems() == []
    assert receiver.got == []


async def test_targets_come_and_go_with_the_policy(stage, authority):
    async with receiving(authority) as receiver, stage.running() as notifier:
        notifier.note(EVICTIONS, evicted("before there was a target"))
        stage.set_targets(stage.target(receiver, "a"))
        await asyncio.sleep(3)
        notifier.note(EVICTIONS, evicted())
        await asyncio.sleep(10)
        stage.set_targets(replace(stage.target(receiver, "a"), kinds=frozenset({NotifyKind.IDLE})))
        notifier.note(EVICTIONS, evicted("unwanted"))
        await asyncio.sleep(200)
        stage.set_targets()
        await asyncio.sleep(3)
        assert notifier.counts() == {}
        stage.set_targets(stage.target(receiver, "a"))
        await asyncio.sleep(3)
        assert notifier.counts()["a", "sent"] == 0
    [request] = receiver.got
    assert request.message["commonAnnotations"]["summary"] == "team vision: 1 pod evicted"


async def test_what_happened_in_the_last_seconds_is_sent_at_the_end(stage, authority):
    async with receiving(authority) as receiver, stage.running(stage.target(receiver)) as notifier:
        await asyncio.sleep(3)
        notifier.set_states(STATES)
        notifier.note(EVICTIONS, evicted("last"))
    assert [each.alerts for each in receiver.got] == [[("vision", "firing")]]


async def test_the_end_waits_for_a_target_that_hangs_for_seconds_only(stage, authority):
    async def hang(_writer):
        await asyncio.sleep(3600)

    async with receiving(authority, hang) as receiver:
        async with stage.running(stage.target(receiver)) as notifier:
            await asyncio.sleep(3)
            notifier.note(EVICTIONS, evicted())
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < FLUSH_SECONDS + 1


async def test_states_of_another_leader_are_not_reported_as_over(stage, authority):
    async with receiving(authority) as receiver, stage.running(stage.target(receiver)) as notifier:
        notifier.set_states(STATES)
        await asyncio.sleep(10)
        notifier.forget_states()
        await asyncio.sleep(1800)
    assert [each.alerts for each in receiver.got] == [[("ledger", "firing")]]


async def test_a_process_knows_only_the_targets_that_it_sends_to(stage, authority):
    mine = frozenset({NotifyKind.EVICTIONS})
    async with receiving(authority) as receiver:
        other = stage.target(receiver, "other", kinds=frozenset({NotifyKind.TROUBLE}), ca_file="absent")
        async with stage.running(stage.target(receiver, "mine"), other, kinds=mine) as notifier:
            await asyncio.sleep(5)
            assert (notifier.problems(), list(notifier.states())) == ([], ["mine"])
