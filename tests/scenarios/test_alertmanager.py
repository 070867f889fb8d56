"""A real Alertmanager takes the messages of a process, and sends them on once, in the format that Fairgate writes."""

import asyncio
import json
import time

import pytest

from tests.addons.messages.made import BEHIND, EVICTIONS, TROUBLE, evicted
from tests.addons.messages.process import Process
from tests.addons.messages.receiver import receiving
from tests.cluster.support.pki import Authority
from webhook.addons.messages.alerts import Alert, State, render
from webhook.core.model.policy_addons import NotifyTarget, NotifyTemplate

pytestmark = pytest.mark.cluster
EVICTED, LEDGER = "FairgateEvictions", "FairgateTrouble"


async def until(condition, *, seconds=60):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # another process makes it true
            await asyncio.sleep(0.05)


def statuses(receiver, alertname):
    """What Alertmanager sent of one kind, in order."""
    messages = [each.message for each in receiver.got]
    return [each["status"] for each in messages if each["groupLabels"]["alertname"] == alertname]


async def test_each_alert_is_sent_on_once_and_ends(alertmanager, tmp_path):
    process = Process(tmp_path, Authority(tmp_path, "ca"), now=time.time())
    async with receiving(None) as people:
        with alertmanager(people.url) as url:
            # an alert that is not sent again for three intervals ends by itself: time for a loaded machine
            api = NotifyTarget(
                "am", url=f"{url}/api/v2/alerts", template=NotifyTemplate.ALERTMANAGER, interval_seconds=4
            )
            async with process.running(api) as notifier:
                notifier.set_states({TROUBLE: BEHIND})
                notifier.note(EVICTIONS, evicted())
                await until(lambda: statuses(people, EVICTED) == ["firing"])
                sent = notifier.counts()["am", "sent"]
                await until(lambda: notifier.counts()["am", "sent"] > sent + 1)  # what lasts is sent again and again
                notifier.forget_states()  # the next leader says the same
                notifier.set_states({TROUBLE: BEHIND})
                await until(lambda: notifier.counts()["am", "sent"] > sent + 3)
                notifier.set_states({})
                await until(lambda: "resolved" in statuses(people, LEDGER))
                assert (notifier.problems(), notifier.counts()["am", "failed"]) == ([], 0)
    assert statuses(people, LEDGER) == ["firing", "resolved"]
    assert statuses(people, EVICTED) == ["firing"]

    received = next(each.message for each in people.got if each.message["groupLabels"]["alertname"] == EVICTED)
    assert received["commonAnnotations"]["description"] == evicted()
    own = json.loads(render([Alert(EVICTIONS, State("a", ("b",)), 0, 0, False)], NotifyTarget("t"), "east"))
    assert own["version"] == received["version"]
    assert own.keys() <= received.keys(), "what Fairgate sends to webhooks, they get from Alertmanager"
    [theirs], [ours] = received["alerts"], own["alerts"]
    assert (ours.keys(), ours["endsAt"]) == (theirs.keys(), theirs["endsAt"])
