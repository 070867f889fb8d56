"""`fairgate queue`: what is printed of a world file with waiting pods, in every layout, and errors."""

import asyncio
import json
from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from tests import builders as b
from tests.cli import sample_world
from tests.cluster.support.fake_api import Answer, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from webhook.cli.live_cluster import ENDED_PODS, read_ended
from webhook.cli.main import main
from webhook.cli.queue.run import QueueReport
from webhook.history.store import Batch, HistoryStore, PodRow, Trace
from webhook.kube.objects import keys

POLICY = """
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: vision, namespaces: [vision], gpus: {guaranteed: 8, limit: 8}}
  - {name: nlp, namespaces: [nlp], gpus: {guaranteed: 4, limit: 8}}
defaults: {onLimit: queue, onNoRoom: queue}
"""


def ago(**time):
    return (datetime.now(UTC) - timedelta(**time)).strftime("%Y-%m-%dT%H:%M:%SZ")


def gated(name, *, namespace="vision", gpus=2, user="ann", gates=(keys.QUEUE_GATE,), text="", created=None):
    decision = {"demand": {b.GPU: str(gpus)}, "gpus": str(gpus), "mode": "queue", "nodes": [], "code": "WaitsForLimit"}
    decision |= {"policy": "p1", "user": user, "at": ago(minutes=30)}
    annotations = {keys.DECISION: json.dumps(decision), keys.WAITING: text}
    made = b.pod(name, namespace=namespace, labels={keys.TEAM: namespace}, annotations=annotations, gpus=gpus)
    made["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    made["metadata"] |= {"creationTimestamp": created or ago(hours=3), "uid": f"uid-{name}"}
    return made


def holder(name, *, gpus=8, started=None, namespace="vision"):
    made = sample_world.pod(name, namespace=namespace, gpus=gpus, node="gpu-1", controller=("Job", "train"))
    made["metadata"]["creationTimestamp"] = ago(hours=20)
    return {**made, "status": {"phase": "Running", "startTime": started or ago(hours=6)}}


def waiting_world():
    """The world of most tests; its times count from now: modules may be imported minutes before their tests run."""
    return [
        b.node("gpu-1", gpus=16),
        holder("train-0"),
        gated("first", created=ago(hours=5)),
        gated("second", gpus=1, user="bob", created=ago(hours=4)),
        gated("held", namespace="nlp", gates=(keys.QUEUE_GATE, "example.com/gate")),
    ]


def queue(folder, *words, found=None):
    options = sample_world.write(folder, waiting_world() if found is None else found)
    (folder / "policy.yaml").write_text(POLICY)
    return CliRunner().invoke(main, ["queue", *options, *words])


def rows(result):
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_every_pod_has_its_place_its_cause_its_holders_and_why_its_start_is_unknown(tmp_path):
    result = queue(tmp_path)
    assert result.exit_code == 0, result.output
    printed = rows(result)
    cause = "team vision holds 8 of 8; next when 2 GPUs come back"
    assert printed[1] == f"1 1 vision/first vision ann 2 5h {cause} vision/Job/train 8 next"
    assert printed[2].startswith("2 2 vision/second vision bob 1 4h team vision holds 8 of 8; next when 1 GPU comes")
    assert printed[3] == "- - nlp/held nlp ann 2 3h scheduling gate example.com/gate of another controller - unknown"
    assert printed[2].endswith(" after 1 other")
    reason = "no pod that ended can be read, and 5 are needed to tell how long pods run; annotation "
    reason += "fairgate.dev/run-time tells it, too"
    assert printed[4:6] == [
        f"unknown for 2 pods: {reason}",
        "unknown for 1 pod: another controller's scheduling gate holds it",
    ]
    assert printed[6] == "total: 3 pods that ask for 5 GPUs"
    assert printed[-1].endswith("1 node, 1 pod; policy " + printed[-1].rpartition(" ")[2])


def stated(pod, text):
    pod["metadata"].setdefault("annotations", {})[keys.RUN_TIME] = text
    return pod


def line_of(found):
    return msgspec.convert(json.loads(found.stdout), QueueReport).pods


def test_in_a_new_cluster_stated_run_times_make_ranges(tmp_path):
    world = [waiting_world()[0], stated(holder("train-0", started=ago(hours=1)), "2h")]
    world += [
        stated(gated("first", gpus=8, created=ago(minutes=50)), "30m"),
        gated("second", gpus=8, created=ago(minutes=30)),
    ]
    first, second = (line_of(queue(tmp_path, "-o", "json", found=world))[n].likely_start for n in (0, 1))
    assert 0 < first.earliest_seconds <= 3600 <= first.latest_seconds < 12 * 3600
    assert first.earliest_seconds < second.earliest_seconds
    assert first.latest_seconds < second.latest_seconds < 16 * 3600
    said = line_of(queue(tmp_path, "-o", "json", found=world))[0].stated_run_time
    assert (said.seconds, said.held, said.tried, said.believed) == (1800, 0, 0, True)


def test_a_deadline_bounds_a_start_of_which_nothing_else_is_known(tmp_path):
    running = holder("train-0", started=ago(hours=1))
    running["spec"]["activeDeadlineSeconds"] = 2 * 3600
    [first] = line_of(queue(tmp_path, "-o", "json", found=[waiting_world()[0], running, gated("first")]))
    assert first.likely_start.earliest_seconds < 10
    assert 3500 <= first.likely_start.latest_seconds <= 3600


def test_where_no_start_can_be_forecast_it_says_how_long_the_last_ones_of_the_size_waited(tmp_path):
    last = [started_pod(f"t{n}", waited=5 * 60 + n * 105) for n in range(21)]
    found = [b.node("gpu-1", gpus=64), *last, waiting_world()[2]]
    printed = rows(queue(tmp_path, found=found))
    assert printed[1].endswith(" last 20: 7m to 40m"), "the oldest of 21 is left out"
    assert "last 20: how long the last pods of this size in the team waited until they started" in printed
    [first] = line_of(queue(tmp_path, "-o", "json", found=found))
    earlier = first.earlier_starts
    assert (earlier.starts, earlier.shortest_seconds, earlier.longest_seconds) == (20, 405, 2400)


def started_pod(name, *, waited):
    """A pod of two GPUs that started some time after it came; those that waited longer started later."""
    made = holder(name, gpus=2)
    start = datetime.now(UTC) - timedelta(hours=3) + timedelta(seconds=waited)
    made["metadata"]["creationTimestamp"] = (start - timedelta(seconds=waited)).strftime("%Y-%m-%dT%H:%M:%SZ")
    made["status"]["startTime"] = start.strftime("%Y-%m-%dT%H:%M:%SZ")
    return made


def test_one_team(tmp_path):
    printed = rows(queue(tmp_path, "--team", "nlp"))
    assert [line for line in printed if "vision/" in line] == []
    assert any("nlp/held" in line for line in printed)


def test_an_unknown_team_is_an_error_that_names_the_teams(tmp_path):
    result = queue(tmp_path, "--team", "visoin")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the policy has no team visoin; teams: nlp, vision" in result.stderr


def test_nothing_waits(tmp_path):
    assert rows(queue(tmp_path, found=waiting_world()[:2]))[0] == "no pod waits in line"


@pytest.mark.parametrize(("layout", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_data_has_the_published_shape(tmp_path, layout, read):
    found = read(queue(tmp_path, "-o", layout).stdout)
    report = msgspec.convert(found, QueueReport)
    assert [(line.team, line.pods, line.gpus) for line in report.teams] == [("nlp", 1, "2"), ("vision", 2, "3")]
    first, _, held = report.pods
    assert (first.place, first.place_in_team, first.code, first.user) == (1, 1, "WaitsForLimit", "ann")
    assert [(each.name, each.gpus) for each in first.holders] == [("vision/Job/train", "8")]
    assert first.likely_start is None
    assert first.likely_start_unknown.startswith("no pod that ended can be read")
    assert (held.place, held.gates, held.likely_start) == (None, ["example.com/gate"], None)


@pytest.mark.slow
def test_the_table_of_ten_thousand_pods_is_bounded(tmp_path):
    many = [gated(f"p{number:05}", created="2026-01-01T00:00:00Z") for number in range(10_000)]
    result = queue(tmp_path, found=[*waiting_world()[:2], *many])
    assert len(result.stdout.splitlines()) < 110
    assert "and 9,900 more pods: --limit, --team or -o json shows them" in rows(result)
    assert len(rows(queue(tmp_path, "--limit", "3", found=[*waiting_world()[:2], *many[:9]]))) < 10


@pytest.mark.parametrize("layout", ["table", "json", "yaml"])
def test_names_cannot_control_the_terminal_or_break_the_table(tmp_path, layout):
    evil = "\x1b[31mred\x1b[0m\nnext\u202e" + "x" * 5000
    pods = [gated("p", user=evil), gated("q", gates=(keys.QUEUE_GATE, evil)), gated("r", text=evil)]
    result = queue(tmp_path, "-o", layout, found=[*waiting_world()[:2], *pods])
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout
    if layout == "table":
        assert "\u202e" not in result.stdout
        assert len(result.stdout) < 10_000


def test_explain_tells_the_same_of_a_waiting_pod(tmp_path):
    options = sample_world.write(tmp_path, waiting_world())
    (tmp_path / "policy.yaml").write_text(POLICY)
    result = CliRunner().invoke(main, ["explain", *options, "pod/second", "-n", "vision"])
    assert result.exit_code == 1, result.output
    printed = rows(result)
    assert printed[1].startswith("It waits in line. Queued (WaitsForLimit) at ")
    assert "line 2nd in line of team vision, 2nd of all, since 4h" in printed
    assert "waits for: team vision holds 8 of 8; next when 1 GPU comes back" in printed
    assert "held by vision/Job/train 8" in printed
    assert any(line.startswith("likely start: unknown, no pod that ended can be read") for line in printed)
    assert "outcome queued" in printed
    want = "waits: team vision holds 8 of 8; next when 1 GPU comes back (WaitsForLimit)"
    assert want in printed, "its place is that of `line`, not the one that it would get now"
    [found] = json.loads(
        CliRunner().invoke(main, ["explain", *options, "pod/second", "-n", "vision", "-o", "json"]).stdout
    )
    assert (found["outcome"], found["user"], found["line"]["place"]) == ("queued", "bob", 2)


def test_explain_says_of_a_new_manifest_that_it_would_be_queued(tmp_path):
    options = sample_world.write(tmp_path, waiting_world())
    (tmp_path / "policy.yaml").write_text(POLICY)
    manifest = json.dumps(b.pod("new", namespace="vision", gpus=2))
    result = CliRunner().invoke(main, ["explain", *options, "-"], input=manifest)
    assert (result.exit_code, result.exception.__class__) == (1, SystemExit), result.output
    text = result.stdout
    assert "queued" in text
    assert "waits: team vision holds 8 of 8; next when 2 GPUs come back; 3rd in line (WaitsForLimit)" in text


def test_status_shows_the_line_of_each_team(tmp_path):
    options = sample_world.write(tmp_path, waiting_world())
    (tmp_path / "policy.yaml").write_text(POLICY)
    printed = rows(CliRunner().invoke(main, ["status", *options]))
    assert "in line" in printed[0]
    assert any(line.startswith("vision 8 8 8 0 0 0 3 (2 pods) ") for line in printed)
    teams = json.loads(CliRunner().invoke(main, ["status", *options, "-o", "json"]).stdout)["teams"]
    assert {each["name"]: (each["queued"], each["queuedGpus"]) for each in teams} == {
        "vision": (2, "3"),
        "nlp": (1, "2"),
    }


@pytest.fixture
async def api():
    async with FakeApi().serving() as server:
        for name in ("vision", "nlp"):
            server.put("/api/v1/namespaces", name)
        for found in waiting_world():
            path = "/api/v1/nodes" if found["kind"] == "Node" else "/api/v1/pods"
            more = {key: found[key] for key in ("metadata", "spec", "status") if key in found}
            namespace = found["metadata"].get("namespace", "")
            server.put(path, found["metadata"]["name"], namespace=namespace, **more)
        yield server


@pytest.fixture
def live(api, tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    config = write_kubeconfig(tmp_path / "k", api.url)

    async def run(*words, command="queue"):
        options = ["--policy", str(tmp_path / "policy.yaml"), "--kubeconfig", str(config), *words]
        return await asyncio.to_thread(CliRunner().invoke, main, [command, *options], catch_exceptions=False)

    run.config = config
    return run


async def test_of_a_live_cluster_ended_pods_say_how_long_pods_run(api, live):
    for number, hours in enumerate((20, 20, 21, 21, 22, 22)):
        ended = holder(f"old-{number}", started=ago(hours=100 + hours))
        terminated = {"state": {"terminated": {"finishedAt": ago(hours=100)}}}
        status = ended["status"] | {"phase": "Succeeded", "containerStatuses": [terminated]}
        metadata, spec = ended["metadata"], ended["spec"]
        api.put("/api/v1/pods", f"old-{number}", namespace="vision", metadata=metadata, spec=spec, status=status)
    result = await live("--team", "vision", "-o", "json")
    assert result.exit_code == 0, result.output
    first = msgspec.convert(json.loads(result.stdout), QueueReport).pods[0]
    assert first.likely_start_unknown is None
    assert first.likely_start.earliest_seconds <= 15 * 3600 <= first.likely_start.latest_seconds, (
        "it ran 6 of about 21 h"
    )


async def test_many_ended_pods_of_one_namespace_do_not_keep_those_of_others_from_being_read(api, live):
    """The API server lists by namespace, and a tenant may leave any number of ended pods."""

    def put(name, namespace, *, hours):
        ended = holder(name, started=ago(hours=100 + hours))
        metadata = ended["metadata"] | {"namespace": namespace}
        terminated = {"state": {"terminated": {"finishedAt": ago(hours=100)}}}
        status = ended["status"] | {"phase": "Succeeded", "containerStatuses": [terminated]}
        api.put("/api/v1/pods", name, namespace=namespace, metadata=metadata, spec=ended["spec"], status=status)

    for number in range(int(ENDED_PODS) + 10):
        put(f"short-{number}", "a-flood", hours=0.001)
    for number in range(6):
        put(f"old-{number}", "vision", hours=20)
    found = await read_ended(Path(live.config), ())
    names = [each["metadata"]["name"] for each in found]
    assert sum(name.startswith("short-") for name in names) == int(ENDED_PODS)
    assert sum(name.startswith("old-") for name in names) == 6


def recorded(path, *, runs=8, hours=10.0):
    """A history of pods of team vision that ran for so long."""
    end = datetime.now(UTC).timestamp() - 3600
    begin = end - hours * 3600
    pods = [
        PodRow(f"r{n}", "vision", f"r{n}", team="vision", gpus=8.0, created=begin, bound=begin, ended=end - n)
        for n in range(runs)
    ]
    store = HistoryStore(path)
    store.write(Batch((), end, Trace(tuple(pods))))
    store.close()
    return path


def test_a_history_says_how_long_pods_run(tmp_path):
    history = recorded(tmp_path / "history.db")
    result = queue(tmp_path, "--history", str(history), "-o", "json")
    assert result.exit_code == 0, result.output
    first = msgspec.convert(json.loads(result.stdout), QueueReport).pods[0]
    assert first.likely_start.earliest_seconds <= 4 * 3600 <= first.likely_start.latest_seconds, "it ran 6 of 10 h"
    again = queue(tmp_path, "--history", str(history), "-o", "json")
    assert json.loads(again.stdout)["pods"][0]["likelyStart"].keys() == {"earliestSeconds", "latestSeconds"}


def test_explain_reads_a_history_too(tmp_path):
    history = recorded(tmp_path / "history.db")
    options = sample_world.write(tmp_path, waiting_world())
    (tmp_path / "policy.yaml").write_text(POLICY)
    result = CliRunner().invoke(main, ["explain", *options, "pod/second", "-n", "vision", "--history", str(history)])
    assert any(line.startswith("likely start: ") and line.endswith("of earlier pods") for line in rows(result))


@pytest.mark.parametrize("command", ["queue", "explain"])
@pytest.mark.parametrize(
    ("damage", "want"),
    [
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:5000]), "is truncated", id="truncated"),
        pytest.param(lambda path: path.write_text("a,b,c"), "is not a history of Fairgate", id="foreign"),
        pytest.param(lambda path: path.unlink(), "cannot be read", id="missing"),
    ],
)
def test_a_history_that_cannot_be_read_is_an_error(tmp_path, damage, want, command):
    history = recorded(tmp_path / "history.db")
    damage(history)
    options = sample_world.write(tmp_path, waiting_world())
    (tmp_path / "policy.yaml").write_text(POLICY)
    words = ["pod/second", "-n", "vision"] if command == "explain" else []
    result = CliRunner().invoke(main, [command, *options, *words, "--history", str(history)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert want in result.stderr


async def test_status_of_a_live_cluster_counts_the_line(live):
    teams = json.loads((await live("-o", "json", command="status")).stdout)["teams"]
    assert {each["name"]: each["queued"] for each in teams} == {"vision": 2, "nlp": 1}


async def test_without_the_right_to_list_all_pods_own_pods_are_shown_and_one_note(api, live):
    for path in ("/api/v1/pods", "/api/v1/nodes"):
        api.faults[f"list {path}"] = deque([Answer(403)] * 9)
    result = await live("-n", "vision", "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [each["name"] for each in found["pods"]] == ["first", "second"]
    assert found["leftOut"]
    assert result.stderr == "fairgate: free room is unknown: no server has published it\n"


async def test_a_user_who_is_not_known_gets_a_clear_error(api, tmp_path, live):
    write_kubeconfig(tmp_path / "k", api.url, token="bad")
    result = await live()
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("fairgate: cannot list ")
    assert "401" in result.stderr


def test_a_replica_in_line_says_how_many_of_its_minimum_are_ready(tmp_path):
    waits = gated("web-5d8f-9", gpus=8)
    waits["metadata"]["labels"]["pod-template-hash"] = "5d8f"
    waits["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d8f", "uid": "r", "controller": True}
    ]
    found = [
        b.node("gpu-1", gpus=16),
        *b.replicas("web", 1, node="gpu-1", gpus=8),
        waits,
        gated("plain"),
        b.autoscaler("web", minimum=2),
    ]
    pods = {each["name"]: each for each in json.loads(queue(tmp_path, "-o", "json", found=found).stdout)["pods"]}
    assert (pods["web-5d8f-9"]["minimum"], pods["web-5d8f-9"]["minimumReady"]) == (2, 1)
    assert (pods["plain"]["minimum"], pods["plain"]["minimumReady"]) == (None, None)
    shown = " ".join(queue(tmp_path, found=found).stdout.split())
    assert shown.count("; of its workload's minimum of 2, 1 is ready") == 1
