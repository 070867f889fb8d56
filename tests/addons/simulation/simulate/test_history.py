"""A history of `fairgate replay` as the trace and the world of `fairgate simulate`, and those that cannot be used."""

import json
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.addons.history import recorded
from tests.addons.simulation.simulate.support import calls
from webhook.addons.history.store import HistoryStore, ObjectRow
from webhook.cli.main import main

KEPT = Path(__file__).parents[2] / "history" / "kept" / "format-1.db"
LOWER = recorded.POLICY.replace("limit: 16", "limit: 8")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recorded.write(tmp_path / "history.db")
    (tmp_path / "same.yaml").write_text(recorded.POLICY)
    (tmp_path / "lower.yaml").write_text(LOWER)
    (tmp_path / "nodes.csv").write_text("name,gpus,count\nnode,8,2\n")
    return tmp_path


data, failed = (partial(call, trace="history.db") for call in (calls.data, calls.failed))


def teams(policy):
    return {each.group: (each.jobs.mean, each.wait_p99 and each.wait_p99.mean) for each in policy.teams}


def test_the_recorded_pods_come_under_each_policy():
    same, lower = data("--policy", "same.yaml", "--policy", "lower.yaml").policies
    assert teams(same) == {"nlp": (2, None), "vision": (3, 0)}  # nlp's 16 GPUs never start
    assert teams(lower)["vision"] == (3, 580)  # the third pod starts when the first ends
    assert same.nodes == 2


def test_the_outcome_is_that_of_replay():
    words = ["replay", "history.db", "--policy", "lower.yaml", "-o", "json"]
    report = json.loads(CliRunner().invoke(main, words).stdout)
    [vision] = [each["new"] for each in report["teams"] if each["team"] == "vision"]
    [found] = data("--policy", "lower.yaml", world="history.db").policies
    [simulated] = [each for each in found.teams if each.group == "vision"]
    assert vision["notStarted"] == simulated.never_started.mean == 0
    assert vision["waitedHours"] == pytest.approx(simulated.wait_p99.mean * 4 / 3600, abs=1e-3)


def test_the_nodes_and_the_policy_of_a_history_are_a_world(folder):
    found = data(world="history.db").policies
    assert [(each.policy, each.nodes, each.gpus) for each in found] == [("recorded", 2, 16)]
    recorded.write(folder / "bare.db", policy=None)
    assert "the history has no policy: give --policy DIR" in failed(world="bare.db")


def test_sizes_and_run_times_of_a_history_under_a_load():
    [found] = data("--policy", "same.yaml", "--load", "0.5", "--days", "1").policies
    assert {each.group for each in found.sizes} == {"3-4", "9-64"}
    assert found.total.jobs.mean > 50


def test_teams_of_a_history_may_be_others(folder):
    (folder / "renamed.yaml").write_text(recorded.POLICY.replace("vision", "images"))
    words = ("--policy", "renamed.yaml")
    assert teams(data(*words, "--rename-team", "vision=images").policies[0])["images"] == (3, 0)
    assert sum(jobs for jobs, _ in teams(data(*words, "--deal-teams").policies[0]).values()) == 5
    assert "unknown team pictures" in failed(*words, "--rename-team", "vision=pictures")
    [found] = data(*words).policies
    assert found.total.refused.mean == 4  # three whose namespace has no team, and nlp's that exceeds its limit


def test_a_namespace_has_the_team_of_its_recorded_labels(folder):
    labels = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision", "labels": {"team": "v"}}}
    namespace = ObjectRow("Namespace", "vision", recorded.T0, object=json.dumps(labels))
    recorded.write(folder / "labeled.db", objects=(recorded.node("n0"), recorded.node("n1"), namespace))
    selector = recorded.POLICY.replace("namespaces: [vision]", "namespaceSelector: {matchLabels: {team: v}}")
    (folder / "labels.yaml").write_text(selector)
    found = data("--policy", "labels.yaml", trace="labeled.db")
    assert teams(found.policies[0])["vision"] == (3, 0)


@pytest.mark.parametrize(("minimums", "lost"), [((), True), ((1,), False)], ids=["no autoscaler", "a minimum of 1"])
def test_the_minimums_of_recorded_autoscalers_count(folder, minimums, lost):
    """An evicted replica of a workload with a minimum loses no work."""
    pods = [recorded.replica("web", f"web-{number}", 4, at=10 * number) for number in (0, 1)]
    pods.append(recorded.came("nlp", "own", 4, at=300))
    around = [recorded.node("n0"), *(recorded.scaler("web", minimum=each) for each in minimums)]
    recorded.write(folder / "replicas.db", pods, objects=around)
    (folder / "borrowing.yaml").write_text(recorded.POLICY.replace("guaranteed: 8, limit: 16", "guaranteed: 0"))
    for world in ("replicas.db", "one-node.csv"):
        (folder / "one-node.csv").write_text("name,gpus,count\nnode,8,1\n")
        [found] = data("--policy", "borrowing.yaml", trace="replicas.db", world=world).policies
        assert found.total.evictions.mean == 1
        assert bool(found.total.lost_gpu_hours.mean) == lost


def test_a_pod_from_before_the_record_comes_at_its_beginning_for_the_rest_of_its_time(folder):
    old = recorded.came("vision", "old", 8, at=-86_400, seconds=86_400 + 600)
    recorded.write(folder / "old.db", [old, recorded.came("vision", "next", 8, at=60)])
    [found] = data("--policy", "lower.yaml", trace="old.db").policies
    assert found.seconds == 60
    assert found.total.wait_p99.mean == 540


def test_another_weight_of_a_resource_counts(folder):
    (folder / "half.yaml").write_text(LOWER + 'resources:\n  nvidia.com/gpu: {gpus: "1/2"}\n')
    assert teams(data("--policy", "half.yaml").policies[0])["vision"] == (3, 0)
    done = CliRunner().invoke(main, ["replay", "history.db", "--policy", "half.yaml", "--policy", "lower.yaml"])
    assert "vision/sweep-0 (4 GPUs): refused, guaranteed → guaranteed" in done.output


def test_what_cannot_be_decided_again_is_noted(folder):
    rows = [*recorded.PODS, recorded.came("vision", "huge", 1, at=5)._replace(object="")]
    recorded.write(folder / "huge.db", rows)
    notes = data("--policy", "same.yaml", trace="huge.db").notes
    assert notes == ["left out of the trace: pods that were too large to be recorded: 1"]


def test_a_history_of_the_first_format_is_read():
    assert data("--policy", "same.yaml", trace=KEPT).policies[0].total.jobs.mean == 5


@pytest.mark.parametrize("part", [0.6, 0.01])
def test_a_truncated_history(folder, part):
    content = (folder / "history.db").read_bytes()
    (folder / "history.db").write_bytes(content[: int(len(content) * part)])
    assert "history.db is truncated" in failed("--policy", "same.yaml")


def changed(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize(
    ("statement", "want"),
    [
        pytest.param(
            "PRAGMA user_version = 2", "has format 2, and this version reads up to 1: use a later Fairgate", id="newer"
        ),
        pytest.param("PRAGMA application_id = 7", "is not a history of Fairgate", id="foreign"),
        pytest.param("DROP TABLE pods", "cannot be read: no such table: pods", id="without a table"),
        pytest.param("UPDATE pods SET gpus = 'many'", "has a row that is not one of a history", id="words for numbers"),
        pytest.param("UPDATE pods SET bound = 9e999", "times or GPUs are no numbers", id="endless"),
        pytest.param("UPDATE pods SET object = ''", "has no pod that can be decided again", id="no pod"),
        pytest.param("UPDATE objects SET object = '{'", "the history: JSON is malformed", id="objects"),
    ],
)
def test_histories_that_cannot_be_used(folder, statement, want):
    changed(folder / "history.db", statement)
    error = failed("--policy", "same.yaml")
    assert want in error
    assert "Traceback" not in error


def test_an_empty_history(folder):
    HistoryStore(folder / "empty.db").close()
    assert "is empty: nothing has been recorded in it yet" in failed("--policy", "same.yaml", trace="empty.db")
    assert "is empty: nothing has been recorded in it yet" in failed("--policy", "same.yaml", world="empty.db")
