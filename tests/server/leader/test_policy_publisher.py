"""The leader publishes the policy in force, again after a change, and again after a while."""

import asyncio

import pytest

from tests.cluster.support.fake_api import Answer
from webhook.cluster.api.client import ApiError
from webhook.cluster.ledger.ledger import TeamState
from webhook.cluster.writes.reports import read_report
from webhook.core.model.amounts import TeamName
from webhook.kube.ledger import reports
from webhook.observe.logs import LogFormat, open_logs
from webhook.policy.watch import PolicyHolder, parse
from webhook.server.leader import registration_loop as publishing
from webhook.server.leader.registration_loop import PolicyPublisher, report_of
from webhook.server.leader.replica_report import BEHIND_SECONDS, LedgerLag

TEAM = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\nteams: [{{name: {0}, namespaces: [{0}]}}]\n"


@pytest.fixture
def holder(tmp_path):
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "a.yaml").write_text(f"# confidential\n{TEAM.format('a')}")
    return PolicyHolder(folder)


@pytest.fixture
def publisher(connection, holder, tmp_path):
    with (tmp_path / "log").open("wb") as log:
        yield PolicyPublisher(connection, holder.in_force, open_logs(LogFormat.JSON, fd=log.fileno()))


async def published(connection):
    return (await read_report(connection, reports.POLICY)).policy


async def test_viewers_read_the_policy_in_force_without_its_comments(connection, holder, publisher, tmp_path):
    await publisher.publish()
    found = await published(connection)
    assert parse({"p": found.documents.encode()}, origin="p") == holder.current
    assert "confidential" not in found.documents
    (tmp_path / "policy" / "a.yaml").write_text(TEAM.format("b"))
    holder.check(), holder.check()
    await publisher.publish()
    assert (await published(connection)).hash == holder.current.hash != found.hash


async def test_an_unchanged_policy_is_written_again_after_a_while(api, connection, publisher, monkeypatch):
    await publisher.publish()
    await publisher.publish()
    assert api.count("patch") == 1
    api.delete(reports.PATH, reports.POLICY)
    monkeypatch.setattr(publishing, "REPEAT_SECONDS", 0.0)
    await publisher.publish()
    assert await published(connection)


async def test_a_missing_right_is_a_problem_until_it_is_granted(api, connection, publisher):
    api.always["patch"] = Answer(403)
    await publisher.publish()
    assert "RBAC must grant this user the verb patch on reports" in publisher.writer.problem
    with pytest.raises(ApiError):
        await published(connection)
    del api.always["patch"]
    await publisher.publish()
    assert publisher.writer.problem is None


def test_a_policy_that_is_too_large_is_omitted_and_the_report_says_so(holder, monkeypatch):
    monkeypatch.setattr(reports, "MAX_POLICY_BYTES", 50)
    found = report_of(*holder.in_force())
    assert found.documents == ""
    assert "at most 50 are published" in found.omitted
    assert found.hash == holder.current.hash


def test_a_view_is_behind_only_after_a_while():
    now, states = [0.0], [TeamState(TeamName("a"), 0, 7), TeamState(TeamName("b"), 0, 0)]
    lag = LedgerLag(lambda: states, lambda: now[0])
    assert lag.behind() == []
    now[0] = BEHIND_SECONDS
    assert lag.behind() == ["team a: 7 resourceVersions behind"]
    states[0] = TeamState(TeamName("a"), 0, 0)
    assert lag.behind() == []
    states[0] = TeamState(TeamName("a"), 0, 3)
    assert lag.behind() == [], "the time starts again"


async def test_a_new_leader_writes_the_policy_again(api, publisher):
    for _ in range(2):
        leading = asyncio.create_task(publisher.run())
        wanted = api.count("patch") + 1
        while api.count("patch") < wanted:  # noqa: ASYNC110 - the fake has no event for it
            await asyncio.sleep(0.01)
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
    assert api.count("patch") >= 2
