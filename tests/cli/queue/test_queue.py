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
from webhook.kube.ledger import reports
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


def test_a_namespace_shows_its_pods_alone_and_all_namespaces_are_the_default(tmp_path):
    def names(*words):
        return [each["name"] for each in json.loads(queue(tmp_path, "-o", "json", *words).stdout)["pods"]]

    assert names("-n", "nlp") == ["held"]
    assert names("-n", "vision", "-n", "nlp") == names() == names("-A") == ["first", "second", "held"]


def test_every_pod_has_its_place_its_cause_and_its_holders(tmp_path):
    result = queue(tmp_path)
    assert result.exit_code == 0, result.output
    printed = rows(result)
    cause = "team vision holds 8 of 8; next when 2 GPUs come back"
    assert printed[1] == f"1 1 vision/first vision ann 2 5h {cause} vision/Job/train 8 -"
    assert printed[2].startswith("2 2 vision/second vision bob 1 4h team vision holds 8 of 8; next when 1 GPU comes")
    assert printed[3] == "- - nlp/held nlp ann 2 3h scheduling gate example.com/gate of another controller - -"
    assert printed[4] == "total: 3 pods that ask for 5 GPUs"
    assert printed[-1].endswith("1 node, 1 pod; policy " + printed[-1].rpartition(" ")[2])


def stated(pod, text):
    pod["metadata"].setdefault("annotations", {})[keys.RUN_TIME] = text
    return pod


def line_of(found):
    return msgspec.convert(json.loads(found.stdout), QueueReport).pods


def test_what_a_user_states_of_a_run_is_shown(tmp_path):
    world = [*waiting_world()[:2], stated(gated("first"), "30m")]
    assert line_of(queue(tmp_path, "-o", "json", found=world))[0].stated_run_time == 1800
    result = CliRunner().invoke(main, ["explain", *sample_world.write(tmp_path, world), "pod/first", "-n", "vision"])
    assert "stated run time: 30m" in rows(result)


def test_one_team(tmp_path):
    printed = rows(queue(tmp_path, "--team", "nlp"))
    assert [line for line in printed if "vision/" in line] == []
    assert any("nlp/held" in line for line in printed)


def test_an_unknown_team_is_an_error_that_names_the_teams(tmp_path):
    result = queue(tmp_path, "--team", "visoin")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the policy has no team visoin; teams: nlp, vision" in result.stderr


def test_nothing_waits(tmp_path):
    assert rows(queue(tmp_path, found=waiting_world()[:2]))[0] == "no pod is queued"


@pytest.mark.parametrize(("layout", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_data_has_the_published_shape(tmp_path, layout, read):
    found = read(queue(tmp_path, "-o", layout).stdout)
    report = msgspec.convert(found, QueueReport)
    assert [(line.team, line.pods, line.gpus) for line in report.teams] == [("nlp", 1, "2"), ("vision", 2, "3")]
    first, _, held = report.pods
    assert (first.place, first.place_in_team, first.code, first.user) == (1, 1, "WaitsForLimit", "ann")
    assert [(each.name, each.gpus) for each in first.holders] == [("vision/Job/train", "8")]
    assert (first.earlier_starts, first.stated_run_time) == (None, None)
    assert (held.place, held.gates) == (None, ["example.com/gate"])


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
    assert printed[1].startswith("It is queued. Queued (WaitsForLimit) at ")
    assert "line 2nd in the queue of team vision, 2nd of all, for 4h" in printed
    assert "waits for: team vision holds 8 of 8; next when 1 GPU comes back" in printed
    assert "held by vision/Job/train 8" in printed
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
    assert "waits: team vision holds 8 of 8; next when 2 GPUs come back; 3rd in the queue (WaitsForLimit)" in text


def test_status_shows_the_line_of_each_team(tmp_path):
    options = sample_world.write(tmp_path, waiting_world())
    (tmp_path / "policy.yaml").write_text(POLICY)
    printed = rows(CliRunner().invoke(main, ["status", *options]))
    assert "queued" in printed[0]
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


async def test_of_a_live_cluster_it_says_how_long_the_last_ones_of_the_size_waited(api, live):
    rows_of = [{"team": "vision", "gpus": "2", "seconds": [0, 420, 2400]}, {"team": "nlp", "gpus": "2", "seconds": [9]}]
    api.put(reports.PATH, reports.STARTS, starts=rows_of)
    printed = rows(await live("--team", "vision"))
    assert printed[1].endswith(" last 3: <1m to 40m")
    assert printed[2].endswith(" -"), "nothing is known of its size"
    assert "earlier waits: how long the last pods of this size in the team waited in the queue, not promised" in printed
    first = line_of(await live("--team", "vision", "-o", "json"))[0]
    earlier = first.earlier_starts
    assert (earlier.starts, earlier.shortest_seconds, earlier.longest_seconds) == (3, 0, 2400)
    told = rows(await live("pod/first", "-n", "vision", command="explain"))
    assert "the last 3 pods of 2 GPUs in team vision waited <1m to 40m" in told


async def test_many_ended_pods_of_one_namespace_do_not_keep_those_of_others_from_being_read(api, live):
    """The API server lists by namespace, and a tenant may leave any number of ended pods."""

    def put(name, namespace):
        ended = holder(name)
        metadata = ended["metadata"] | {"namespace": namespace, "labels": {}}
        status = ended["status"] | {"phase": "Succeeded"}
        api.put("/api/v1/pods", name, namespace=namespace, metadata=metadata, spec=ended["spec"], status=status)

    for number in range(int(ENDED_PODS) + 10):
        put(f"short-{number}", "a-flood")
    for number in range(6):
        put(f"old-{number}", "vision")
    found = await read_ended(Path(live.config))
    names = [each["metadata"]["name"] for each in found]
    assert sum(name.startswith("short-") for name in names) == int(ENDED_PODS)
    assert sum(name.startswith("old-") for name in names) == 6


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
