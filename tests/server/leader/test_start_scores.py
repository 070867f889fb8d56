"""The leader forecasts starts, scores them by what happened, and publishes the scores."""

import pytest

from tests.core.support.make import node, policy, resident, team, world
from tests.server.support.leader_context import leader_context
from tests.simulation.loads import QUEUES, task
from webhook.cluster.writes.reports import read_report
from webhook.core.explain.line_places import RangeScores, Run, Score, StartRange
from webhook.core.model.pod import RunTime
from webhook.core.world.waiting_pods import WaitingPod
from webhook.kube.ledger import reports
from webhook.observe.logs import LogFormat, open_logs
from webhook.server.leader import start_scores
from webhook.server.leader.start_scores import LOOK_SECONDS, OPEN_OF_TEAM, StartScorer

NOW = 1_800_000_000


@pytest.fixture
def made(connection, tmp_path):
    """A scorer on a world with a node of 8 GPUs, one pod on it that says it runs an hour, and pods in line."""
    place = world(policy(team(guaranteed=8, limit_=8), defaults=QUEUES), [node("node-0", gpus=8)])
    place.set_pod(resident(8, uid="r", node="node-0", created=NOW - 600))
    place.tick(NOW)
    runs = [Run("r", "team-a", NOW - 600, 0, 0, None, RunTime(3600))]
    with (tmp_path / "log").open("wb") as log:
        logs = open_logs(LogFormat.JSON, fd=log.fileno())
        context = leader_context(place, connection=connection, logs=logs)
        yield StartScorer(context, runs=runs, clock=lambda: float(NOW)), place


def wait(place, count, *, team_="team-a", gpus=8):
    for number in range(count):
        pod = task(f"w{number}", team_, gpus).pod._replace(uid=f"{team_}-{number}", namespace=team_)
        place.set_waiting(WaitingPod(pod, team_, created=NOW - 500 + number))


def opened(scorer, uid, found, *, at=NOW):
    scorer._open[uid] = start_scores._Open(at, found, "team-a")


async def run_here(work):
    """Do the work of a snapshot here: a process takes real time, of which the tests' loop has none."""
    return work()


async def test_ranges_of_the_pods_in_line_are_forecast(made, monkeypatch):
    scorer, place = made
    monkeypatch.setattr(scorer._snapshots, "run", run_here)
    monkeypatch.setattr(start_scores.os, "nice", lambda _by: None)
    wait(place, 2)
    await scorer.forecast()
    assert set(scorer._open) == {"team-a-0"}, "of the second nothing says when those before it end"
    found = scorer._open["team-a-0"].found
    assert 0 < found.earliest < found.latest < 8 * 3600


async def test_a_team_has_a_bounded_number_of_ranges(made, monkeypatch):
    scorer, place = made
    wait(place, OPEN_OF_TEAM + 20, gpus=1)
    assert len(list(scorer._chosen())) == OPEN_OF_TEAM
    monkeypatch.setattr(start_scores, "MOST_OPEN", 7)
    assert len(list(scorer._chosen())) == 7


@pytest.mark.parametrize(
    ("after", "want"),
    [(50, Score(earlier=1)), (200, Score(inside=1)), (300 + LOOK_SECONDS, Score(inside=1)), (400, Score(later=1))],
)
async def test_a_range_is_scored_when_its_pod_starts(made, after, want):
    scorer, place = made
    opened(scorer, "started", StartRange(100, 300))
    place.set_pod(resident(1, uid="started", node="node-0"))
    scorer.look(NOW + after)
    assert scorer.results == want
    assert scorer.scores.of(StartRange(0, 200)) == want
    scorer.look(NOW + after)
    assert scorer.results == want, "once"


async def test_one_that_has_passed_is_too_late_and_a_deleted_pod_says_nothing(made):
    scorer, place = made
    wait(place, 1)
    opened(scorer, "team-a-0", StartRange(100, 300))
    opened(scorer, "deleted", StartRange(100, 300))
    scorer.look(NOW + 300)
    assert scorer.results == Score()
    scorer.look(NOW + 306)
    assert scorer.results == Score(later=1)
    assert scorer._open == {}


async def test_the_next_leader_goes_on_from_what_was_published(made, connection):
    scorer, _ = made
    assert await scorer._read(reports.STARTS) is None
    for _ in range(3):
        scorer.scores.note(StartRange(0, 60), 30, slack=0)
    scorer.scores.note(StartRange(0, 10**6), 10**7, slack=0)
    assert await scorer.writer.write(reports.starts_patch(scorer.scores))
    found = reports.scores_of(await read_report(connection, reports.STARTS))
    assert found.by_class == scorer.scores.by_class
    assert await scorer.writer.write(reports.starts_patch(scorer.scores)), "it exists now"


async def test_without_an_evictor_a_start_by_eviction_is_not_forecast(made, monkeypatch):
    scorer, place = made
    seen = []
    wait(place, 1)

    def noted(_world, past, uids, *, now):
        seen.append((past.no_evictor, uids, now))
        return start_scores.msgspec.msgpack.encode({})

    monkeypatch.setattr(start_scores, "_forecast", noted)
    monkeypatch.setattr(scorer._snapshots, "run", run_here)
    await scorer.forecast()
    leading = reports.ReplicaReport("evictor", reports.written_at(NOW), "v", "p", "enforce", leading=True)
    scorer_report = reports.Report(replicas={"e": leading})

    async def read(_name):
        return scorer_report

    monkeypatch.setattr(scorer, "_read", read)
    await scorer.forecast()
    scorer_report = reports.Report(replicas={"e": replace_at(leading, NOW - 60)})
    await scorer.forecast()
    assert seen == [(why, ["team-a-0"], NOW) for why in ("no evictor leads", "", "no evictor leads")]


def replace_at(report, at):
    return start_scores.msgspec.structs.replace(report, at=reports.written_at(at))


def test_scores_of_a_later_version_are_left_out():
    rows = [reports.RangesReport(600, 1, 2, 3), reports.RangesReport(12345, 9, 9, 9), reports.RangesReport(0, 4)]
    found = reports.scores_of(reports.Report(starts=rows))
    assert found.by_class == {0: Score(1, 2, 3), 4: Score(4)}
    assert isinstance(reports.scores_of(None), RangeScores)
