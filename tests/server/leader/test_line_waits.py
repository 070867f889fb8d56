"""The leader publishes how long the last pods waited in line, and goes on with what an earlier one published."""

from http import HTTPStatus

import pytest

from tests.cluster.support.fake_api import Answer
from tests.core.support.make import world
from tests.server.support.harness import until
from tests.server.support.leader_context import leader_context
from tests.server.support.releases import A, staged
from webhook.cluster.writes.reports import read_report
from webhook.core.explain.line_rows import EarlierWaits
from webhook.core.model.amounts import ONE_GPU
from webhook.kube.ledger import reports
from webhook.server.leader import start_loop
from webhook.server.leader.waiting_reasons import WaitPublisher


@pytest.fixture
def made(connection):
    """A publisher and its waits, each time of another leader."""

    def another():
        waits = EarlierWaits()
        return WaitPublisher(leader_context(world(), connection=connection), waits), waits

    return another


async def published(connection):
    return EarlierWaits(reports.waits_of(await read_report(connection, reports.STARTS))).of("a", ONE_GPU)


async def test_a_leader_goes_on_with_what_an_earlier_one_published(made, connection):
    publisher, waits = made()
    waits.note("a", ONE_GPU, 60)
    await publisher.publish()
    assert await published(connection) == (1, 60, 60)
    publisher, waits = made()
    waits.note("a", ONE_GPU, 120)
    await publisher.publish()
    assert await published(connection) == waits.of("a", ONE_GPU) == (2, 60, 120)


async def test_what_did_not_change_is_not_written_again(api, made):
    publisher, waits = made()
    await publisher.publish()
    assert api.count("patch") == 0, "nothing is known"
    waits.note("a", ONE_GPU, 60)
    for _ in range(3):
        await publisher.publish()
    assert api.count("patch") == 1


async def test_what_cannot_be_read_is_not_overwritten(api, made, connection):
    publisher, waits = made()
    waits.note("a", ONE_GPU, 60)
    await publisher.publish()
    publisher, waits = made()
    waits.note("a", ONE_GPU, 120)
    api.always["get"] = Answer(HTTPStatus.SERVICE_UNAVAILABLE)
    await publisher.publish()
    del api.always["get"]
    assert await published(connection) == (1, 60, 60)
    await publisher.publish()
    assert await published(connection) == (2, 60, 120)


async def test_a_pod_that_was_in_line_counts_once_it_is_released(tmp_path, monkeypatch):
    monkeypatch.setattr(start_loop, "POLL_SECONDS", 0.2)
    async with staged(tmp_path) as stage:
        stage.queue()
        await until(lambda: not stage.is_gated())
        counts = stage.releaser.counts
        await until(lambda: counts.released)
        assert counts.waits.of(A, ONE_GPU).number == 1
