"""Reports over real HTTP: each process writes its own entry, and removes those that did not shut down cleanly."""

import asyncio
import time
from contextlib import suppress

import pytest

from tests.cluster.support.fake_api import Answer
from tests.cluster.support.stores import until
from webhook.cluster.api.client import ApiError
from webhook.cluster.writes import reports as writing
from webhook.cluster.writes.reports import ReplicaReporter, read_report, write_report
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import PolicyReport, ReplicaReport

REPLICAS = f"{reports.PATH}/{reports.REPLICAS}"
NOON = 1_800_000_000.0


def state(**more):
    fields = {"component": "server", "at": "", "version": "1", "policy": "p1", "enforce": "enforce"}
    return ReplicaReport(**fields | more)


class Process:
    """A process whose state a test changes."""

    def __init__(self, connection, identity="host_1", **more):
        self.more, self.time = more, NOON
        self.reporter = ReplicaReporter(
            connection, identity=identity, describe=lambda at: state(at=at, **self.more), clock=lambda: self.time
        )


async def entries_or_none(connection):
    """Hear from the API server once, as a process has before it reports."""
    with suppress(ApiError):
        await entries(connection)


async def entries(connection):
    return (await read_report(connection, reports.REPLICAS)).replicas


async def test_the_first_process_creates_the_object_and_the_others_add_to_it(connection):
    await Process(connection, "host_1").reporter.publish()
    await Process(connection, "host_2", leading=True).reporter.publish()
    found = await entries(connection)
    assert sorted(found) == ["host_1", "host_2"]
    assert found["host_2"].leading
    assert reports.read_at(found["host_1"].at) == NOON


@pytest.mark.parametrize("ahead", [300, -300], ids=["behind", "ahead"])
async def test_a_process_with_a_wrong_clock_reports_by_the_clock_of_the_api_server(api, connection, ahead):
    api.ahead_seconds = ahead
    await entries_or_none(connection)
    reporter = ReplicaReporter(connection, identity="host_1", describe=lambda at: state(at=at))
    await reporter.publish()
    assert abs(reports.read_at((await entries(connection))["host_1"].at) - time.time() - ahead) < 30


async def test_a_process_with_a_wrong_clock_does_not_remove_those_that_report(api, connection):
    api.ahead_seconds = -400
    await entries_or_none(connection)
    for identity in ("host_1", "host_2", "host_1", "host_2"):
        await ReplicaReporter(connection, identity=identity, describe=lambda at: state(at=at)).publish()
    assert sorted(await entries(connection)) == ["host_1", "host_2"]


async def test_a_change_is_written_at_once_and_an_unchanged_state_rarely(api, connection):
    process = Process(connection)
    await process.reporter.publish()
    await process.reporter.publish()
    assert api.count("patch") == 1, "nothing changed"
    process.more = {"not_ready": ["world: silent"]}
    await process.reporter.publish()
    assert (await entries(connection))["host_1"].not_ready == ["world: silent"]
    process.more = {}
    await process.reporter.publish()
    assert (await entries(connection))["host_1"].not_ready == [], "the entry is removed"
    await asyncio.sleep(writing.REPEAT_SECONDS + 1)
    await process.reporter.publish()
    assert api.count("patch") == 4


async def test_entries_of_processes_that_crashed_are_removed(connection):
    await Process(connection, "dead_1").reporter.publish()
    process = Process(connection)
    process.time = NOON + writing.FORGET_SECONDS + 1
    await process.reporter.publish()
    assert sorted(await entries(connection)) == ["dead_1", "host_1"], "it was not known before"
    process.more = {"leading": True}
    await process.reporter.publish()
    assert sorted(await entries(connection)) == ["host_1"]


async def test_a_clean_shutdown_removes_the_entry(api, connection):
    process = Process(connection)
    running = asyncio.create_task(process.reporter.run())
    await until(lambda: api.objects[reports.PATH])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await entries(connection) == {}


async def test_a_missing_right_is_logged_once_and_retried(api, connection, caplog):
    api.always["patch"] = Answer(403)
    process = Process(connection)
    await process.reporter.publish()
    await process.reporter.publish()
    assert "cannot patch reports" in process.reporter.problem
    assert len(caplog.records) == 1
    del api.always["patch"]
    await process.reporter.publish()
    assert process.reporter.problem is None


async def test_a_policy_is_written_over_an_older_one(connection):
    for name in ("p1", "p2"):
        patch = reports.report_patch(reports.POLICY, PolicyReport(name, "enforce", "kind: Policy\n"))
        await write_report(connection, reports.POLICY, patch)
    assert (await read_report(connection, reports.POLICY)).policy.hash == "p2"


async def test_a_missing_report_is_an_api_error(connection):
    with pytest.raises(ApiError) as refused:
        await read_report(connection, reports.POLICY)
    assert refused.value.is_missing


def test_texts_are_cut():
    assert len(reports.shortened("x" * 10_000)) == reports.MAX_TEXT_CHARACTERS
    assert reports.read_at("yesterday") is None


async def test_a_process_knows_the_reports_of_the_others_while_it_can_write(api, connection):
    one, other = Process(connection, "host_1").reporter, Process(connection, "host_2", leading=True).reporter
    await other.publish()
    assert one.replicas == {}
    await one.publish()
    assert {name: each.leading for name, each in one.replicas.items()} == {"host_1": False, "host_2": True}
    api.always["patch"] = Answer(403)
    await asyncio.sleep(writing.REPEAT_SECONDS)
    await one.publish()
    assert one.replicas == {}, "they may be old"
