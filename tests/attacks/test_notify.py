"""Messages to people: a tenant floods no one, mentions no one, fills no memory, and finds no secret."""

import asyncio
import json
import tracemalloc

import msgspec
import pytest
import yaml

from tests import builders
from tests.addons.messages.made import EVICTIONS, NOW
from tests.addons.messages.process import Process
from tests.addons.messages.receiver import receiving, status
from tests.cluster.support.pki import Authority
from tests.core.support import make
from webhook.addons.messages.alerts import MAX_LINES, bounded
from webhook.addons.messages.notifier import watch_notify
from webhook.addons.messages.server import RefusalWindow, ServerMessages
from webhook.core.model.policy_addons import NotifyRules, NotifyTarget, NotifyTemplate, SecretHeader
from webhook.kube.ledger.reports import ReplicaReport, written_at
from webhook.observe.evictor import ReclaimMetrics
from webhook.observe.logs import LogFormat, open_logs
from webhook.observe.metrics import Metrics
from webhook.policy.build import published
from webhook.policy.watch import parse
from webhook.server.addons import ServerParts
from webhook.server.review.reviewer import AdmissionReviewer
from webhook.server.review.verdicts import MemoryLedger

TOKEN = "xoxb-very-secret-4711"
BEARER = SecretHeader("Authorization", "token", "Bearer ")
REFUSALS = NotifyRules((NotifyTarget("t"),))


@pytest.fixture
def process(tmp_path):
    return Process(tmp_path, Authority(tmp_path, "ca"))


@pytest.fixture
def authority(process, tmp_path):
    found = Authority(tmp_path, "receivers")
    (process.secrets / "ca.crt").write_bytes(found.certificate.read_bytes())
    return found


@pytest.mark.slow
async def test_ten_thousand_refusals_in_a_second_are_one_message(process, authority, tmp_path):
    world = make.world(make.policy(make.team(guaranteed=0, limit_=0), notify=REFUSALS))
    with (tmp_path / "reviews.log").open("wb") as log:
        parts = ServerParts(world=world, logs=open_logs(LogFormat.JSON, fd=log.fileno()), metrics=Metrics())
        messages = ServerMessages(parts, secrets=None)
        reviewer = AdmissionReviewer(
            world, MemoryLedger(world, lambda: 0.0), now_text=lambda: "", on_refusal=messages.refused
        )
        bodies = [
            builders.review(builders.pod(f"<!channel>-{number}", namespace="team-a", gpus=8), namespace="team-a")
            for number in range(100)
        ]
        for number in range(10_000):
            assert not json.loads(reviewer.mutate(bodies[number % 100]).body)["response"]["allowed"]
    report = ReplicaReport("server", written_at(NOW), "1", "p1", "enforce", refused=messages.report()["refused"])
    assert len(msgspec.json.encode(report)) < 1000
    window = RefusalWindow()
    window.update({"a": ReplicaReport("server", written_at(NOW), "1", "p1", "enforce")}, NOW)
    window.update({"a": report}, NOW + 10)
    async with receiving(authority) as receiver, process.running(process.target(receiver)) as notifier:
        for second in range(60):
            notifier.set_states(window.states(NotifyRules(), NOW + 10 + second))
            await asyncio.sleep(1)
    [request] = receiver.got
    assert request.message["commonAnnotations"] == {
        "summary": "team team-a: 10,000 refused requests within 10m",
        "description": "TeamLimitExceeded: 10,000",
    }
    assert b"channel" not in request.body


async def test_memory_is_bounded_whatever_happens(process, authority):
    async with receiving(authority) as receiver, process.running(process.target(receiver)) as notifier:
        tracemalloc.start()
        for number in range(5_000):
            notifier.note(EVICTIONS, bounded(f"{number}" * 100 + "x" * 100_000))
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await asyncio.sleep(10)
    [request] = receiver.got
    shown = request.message["commonAnnotations"]
    assert (shown["summary"], shown["description"].count("\n")) == ("team vision: 5,000 pods evicted", MAX_LINES - 1)
    assert len(request.body) < 40_000
    assert held < 200_000


async def test_no_name_becomes_a_mention_or_a_link(process, authority):
    names = [
        "<!channel>",
        "<https://evil.example|look>",
        "@everyone",
        "evil.example.com",
        'a"},{"b',
        "a\n• b\x1b[2J\u202e",
    ]
    async with receiving(authority) as program, receiving(authority) as alerts:
        targets = [
            process.target(program, "program"),
            process.target(alerts, "alerts", template=NotifyTemplate.ALERTMANAGER),
        ]
        async with process.running(*targets) as notifier:
            for name in names:
                notifier.note(EVICTIONS, bounded(f"{name}/{name}"))
            await asyncio.sleep(10)
    [alert] = alerts.got[0].message
    assert program.got[0].message["commonAnnotations"] == alert["annotations"]
    text = alert["annotations"]["description"]
    assert not {"<", ">", "\x1b", "\u202e"}.intersection(text)
    assert "@everyone" not in text
    assert text.count("\n") == len(names) - 1
    for got in (program.got, alerts.got):
        assert b"evil" not in json.dumps([got[0].line, got[0].headers]).encode()


async def test_no_secret_shows_anywhere(process, authority):
    """Receivers send back what they got, and each of them fails in another way."""
    (process.secrets / "token").write_text(TOKEN)
    answers = [status(500, f"X: {TOKEN}"), status(302, f"Location: https://h/{TOKEN}"), TOKEN.encode(), status(400)]
    metrics, shown = ReclaimMetrics(), []
    for number, answer in enumerate(answers):
        async with receiving(authority, answer) as receiver:
            (process.secrets / "url").write_text(f"{receiver.url}/{TOKEN}")
            target = process.target(receiver, f"t{number}", url="", url_file="url", header=BEARER)
            async with process.running(target) as notifier:
                notifier.note(EVICTIONS, "evicted")
                await asyncio.sleep(20)
                assert receiver.got[0].headers["authorization"] == f"Bearer {TOKEN}"
                report = ReplicaReport("server", "", "1", "p1", "enforce", notify=notifier.problems())
                assert report.notify
                shown += [repr(report), repr(notifier.counts()), repr(process.policy)]
                if not number:
                    watch_notify(metrics, notifier)
                    shown.append(metrics.expose().body.decode())
    assert "fairgate_notify_failing" in "".join(shown)
    assert TOKEN not in "".join(shown)
    assert "notify target not reached" in process.logged()
    assert TOKEN not in process.logged()


def test_the_published_policy_has_names_of_files_only():
    target = {"name": "t", "urlFile": "on-call-url", "tokenFile": "token"}
    head = {"apiVersion": "fairgate.dev/v1alpha1", "kind": "Policy"}
    files = {"p.yaml": yaml.safe_dump({**head, "notify": {"targets": [target]}}).encode()}
    assert parse(files, origin="p").notify.targets[0].url_file == "on-call-url"
    assert yaml.safe_load(published(files))["notify"]["targets"] == [target]
