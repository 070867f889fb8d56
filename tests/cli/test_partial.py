"""Commands with partial rights over real HTTP: each missing right is reported once, without retries."""

import asyncio
import json
import time
from collections import deque

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from tests.builders import container
from tests.cluster.support.fake_api import Answer, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from tests.core.support import make
from tests.core.support.waiting import waiting
from webhook.addons.viewers.nameless import Anonymizer
from webhook.addons.viewers.room_report import room_report
from webhook.cli.main import main
from webhook.core.model.amounts import ONE_GPU, NodeName
from webhook.core.model.node import Autoscaler
from webhook.kube.ledger import reports
from webhook.kube.nodes.nodes import STATUS_PATH
from webhook.policy.watch import parse

POLICY = """apiVersion: fairgate.dev/v1alpha1
kind: Policy
enforce: warn
teams:
  - {name: nlp, namespaces: [nlp], gpus: {guaranteed: 4, limit: 8}}
  - {name: vision, namespaces: [vision], gpus: {guaranteed: 4, limit: 8}}
"""
CLUSTER_WIDE = (
    "/api/v1/nodes",
    "/api/v1/pods",
    "/api/v1/namespaces",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/resource.k8s.io/v1/deviceclasses",
    "/apis/resource.k8s.io/v1/resourceslices",
    "/apis/resource.k8s.io/v1/devicetaintrules",
    "/apis/policy/v1/poddisruptionbudgets",
    "/api/v1/limitranges",
    "/api/v1/persistentvolumes",
    "/apis/resource.k8s.io/v1/resourceclaims",
    "/apis/resource.k8s.io/v1/resourceclaimtemplates",
)
LEDGERS = "/apis/fairgate.dev/v1alpha1/teamledgers"


@pytest.fixture
async def api():
    async with FakeApi().serving() as server:
        server.put("/api/v1/namespaces", "nlp")
        spec = {"containers": [container(gpus=2)]}
        labels = {"fairgate.dev/team": "nlp", "fairgate.dev/tier": "guaranteed"}
        server.put("/api/v1/pods", "mine", namespace="nlp", spec=spec, metadata={"labels": labels})
        policy = parse({"p": POLICY.encode()}, origin="p")
        said = {"hash": policy.hash, "enforce": "enforce", "documents": POLICY}
        server.put(reports.PATH, "policy", policy=said)
        for team, used in (("nlp", "2"), ("vision", "7")):
            status = {"team": team, "used": used, "preemptible": "3" if team == "vision" else "0", "waiting": "0"}
            server.put(LEDGERS, team, status=status)
        forbid(server, *CLUSTER_WIDE)
        yield server


def forbid(server, *paths):
    for path in paths:
        server.faults[f"list {path}"] = deque([Answer(403)] * 9)


@pytest.fixture
def fairgate(api, tmp_path):
    config = write_kubeconfig(tmp_path / "kubeconfig", api.url)

    async def run(*words):
        command = [*map(str, words), "--kubeconfig", str(config)]
        return await asyncio.to_thread(CliRunner().invoke, main, command, catch_exceptions=False)

    return run


async def test_usage_of_all_teams_is_read_from_their_ledgers(api, fairgate):
    done = await fairgate("status", "-n", "nlp", "-o", "json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert {team["name"]: (team["used"], team["preemptible"]) for team in printed["teams"]} == {
        "nlp": ("2", "0"),
        "vision": ("7", "3"),
    }
    assert done.stderr == "fairgate: free room is unknown: no server has published it\n"
    assert {request.verb for request in api.asked} <= {"list", "get"}, "nothing is watched"
    refused = [request.path for request in api.asked if request.path in CLUSTER_WIDE]
    assert len(refused) == len(set(refused)), "nothing refused is requested twice"


async def test_the_ledger_of_a_department_is_no_team(api, fairgate):
    api.put(
        LEDGERS, "department-lab", status={"team": "department lab", "used": "9", "preemptible": "3", "waiting": "0"}
    )
    done = await fairgate("status", "-n", "nlp", "-o", "json")
    assert [team["name"] for team in json.loads(done.stdout)["teams"]] == ["nlp", "vision"]


async def test_fractional_usage_is_read(api, fairgate):
    status = {"team": "vision", "used": "81566/81559", "reserved": "1", "preemptible": "7/81559", "waiting": "0"}
    api.put(LEDGERS, "vision", status=status)
    done = await fairgate("status", "-n", "nlp", "-o", "json")
    assert done.exit_code == 0, done.output
    printed = {team["name"]: (team["used"], team["preemptible"]) for team in json.loads(done.stdout)["teams"]}
    assert printed["vision"] == ("81566/81559", "7/81559")


@pytest.mark.parametrize("rights", ["all", "some"])
async def test_what_pods_deleted_by_force_left_is_read_from_ledgers_with_any_rights(api, fairgate, tmp_path, rights):
    status = {"team": "vision", "used": "8", "reserved": "8", "preemptible": "8", "lingering": "8"}
    entry = {"uid": "p/lingers", "ns": "vision", "name": "p", "gpus": 8 * ONE_GPU, "tier": "preemptible"}
    entries = [entry | {"label": "preemptible", "lingers": 15}]
    api.put(LEDGERS, "vision", status=status, ledger={"inFlight": entries})
    if rights == "all":
        api.faults.clear()
    asked = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q", "namespace": "vision"}}
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(asked | {"spec": {"containers": [container(gpus=1)]}}))
    done = await fairgate("review", file, "-n", "vision")
    assert "limit 8, used 0, reserved 8 (8 of pods deleted by force)" in done.output
    done = await fairgate("status", "-n", "vision", "-o", "json")
    assert {team["name"]: team["used"] for team in json.loads(done.stdout)["teams"]}["vision"] == "8"


async def test_without_ledgers_usage_counts_the_pods_shown_and_says_so(api, fairgate):
    forbid(api, LEDGERS)
    done = await fairgate("status", "-n", "nlp", "-o", "json")
    assert done.exit_code == 0
    assert "usage counts only the pods shown, and may be higher" in json.loads(done.stdout)["leftOut"]
    assert json.loads(done.stdout)["teams"][1]["used"] == "0"


@pytest.mark.parametrize("command", ["status -o wide", "status -o json", "explain pod/mine -o json", "world"])
async def test_charges_in_flight_of_other_namespaces_count_without_names(api, fairgate, command):
    [status] = [each["status"] for each in api.objects[LEDGERS].values() if each["status"]["team"] == "vision"]
    entry = {"uid": "p", "ns": "vision", "name": "secret-project", "gpus": 7 * ONE_GPU, "tier": "guaranteed"}
    api.put(LEDGERS, "vision", status=status, ledger={"inFlight": [entry]})
    done = await fairgate(*command.split(), "-n", "nlp")
    assert done.exit_code in {0, 1}, done.output
    assert "secret-project" not in done.output
    if command == "status -o json":
        assert {team["name"]: team["used"] for team in json.loads(done.stdout)["teams"]}["vision"] == "7"


async def test_a_viewer_of_everything_but_ledgers_is_served_and_a_note_says_what_is_missing(api, fairgate):
    api.faults.clear()
    forbid(api, LEDGERS)
    done = await fairgate("status", "-n", "nlp", "-o", "json")
    assert done.exit_code == 0
    [note] = json.loads(done.stdout)["leftOut"]
    assert note.startswith("charges of pods that are still to start are unknown: ask an admin")


async def test_without_any_rights_the_command_fails_at_once(api, fairgate):
    forbid(api, LEDGERS, "/api/v1/namespaces/default/pods", "/api/v1/namespaces/nlp/pods")
    for kind in ("resourceclaims", "resourceclaimtemplates"):
        forbid(api, *(f"/apis/resource.k8s.io/v1/namespaces/{each}/{kind}" for each in ("default", "nlp")))
    scalers = "/apis/autoscaling/v2/{}horizontalpodautoscalers"
    forbid(api, *(scalers.format(each) for each in ("", "namespaces/default/", "namespaces/nlp/")))
    of_namespaces = ("/apis/policy/v1/namespaces/{}/poddisruptionbudgets", "/api/v1/namespaces/{}/limitranges")
    for each in (*of_namespaces, "/apis/scheduling.k8s.io/v1beta1/namespaces/{}/podgroups"):
        forbid(api, *(each.format(namespace) for namespace in ("default", "nlp")))
    api.faults["get /api/v1/namespaces/default"] = deque([Answer(403)])
    api.faults["get /api/v1/namespaces/nlp"] = deque([Answer(403)])
    forbid(api, "/apis/scheduling.k8s.io/v1beta1/podgroups")
    done = await fairgate("world", "-n", "nlp")
    assert done.exit_code == 2
    assert "may not list nodes, pods, namespaces or TeamLedgers" in done.stderr


POLICIES = {
    "forbidden": ("you may not read the policy in force", "kubectl create clusterrolebinding", "fairgate-viewer"),
    "missing": ("no policy is published", "--policy"),
    "omitted": ("is not published: too large", "--policy"),
    "newer": ("this version cannot read", "--policy"),
}


@pytest.mark.parametrize("case", POLICIES)
async def test_without_a_policy_the_error_says_how_to_get_one(api, fairgate, case):
    match case:
        case "forbidden":
            api.faults[f"get {reports.PATH}/policy"] = deque([Answer(403)])
        case "missing":
            api.delete(reports.PATH, "policy")
        case "omitted":
            api.put(reports.PATH, "policy", policy={"hash": "p", "enforce": "enforce", "omitted": "too large"})
        case "newer":
            documents = POLICY.replace("limit", "ceiling")
            api.put(reports.PATH, "policy", policy={"hash": "p", "enforce": "enforce", "documents": documents})
    done = await fairgate("status")
    assert done.exit_code == 2
    assert all(words in done.stderr for words in POLICIES[case]), done.stderr


async def test_the_policy_in_force_is_that_of_the_server_with_its_flag(fairgate):
    done = await fairgate("policy", "diff", "/dev/null")
    assert done.exit_code == 2, "an empty file is no policy"
    printed = await fairgate("explain", "pod/mine", "-n", "nlp", "-o", "json")
    assert json.loads(printed.stdout)[0]["outcome"] == "admitted"


def test_a_world_file_has_no_policy():
    done = CliRunner().invoke(main, ["status", "--world", "world.yaml"])
    assert done.exit_code == 2
    assert "give --policy DIR: only a live cluster has a policy in force" in done.stderr


def deployment(api):
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container(gpus=2)]}}
    spec = {"replicas": 3, "template": template}
    api.put("/apis/apps/v1/deployments", "web", namespace="nlp", spec=spec, apiVersion="apps/v1", kind="Deployment")


async def test_a_workload_is_explained_with_rights_in_one_namespace(api, fairgate):
    deployment(api)
    done = await fairgate("explain", "deploy/web", "-n", "nlp", "--node", "gpu-1")
    assert done.exit_code == 0, done.output
    assert "Deployment nlp/web" in done.stdout
    assert "0 of 3 pods exist" in done.stdout
    assert "not looked at: you may not list all nodes and pods" in done.stdout
    assert "reclaim" not in done.stdout
    assert done.stderr.count("fairgate:") == 1
    paths = [each.path for each in api.asked]
    assert not [path for path in paths if "poddisruptionbudgets" in path or "leases" in path], "not needed here"


GIVES = {"type": "Container", "default": {"nvidia.com/gpu": "1"}}


async def test_a_limit_range_of_the_namespace_gives_its_devices_to_new_pods(api, fairgate, tmp_path):
    web = {"containers": [{"name": "main", "image": "i", "resources": {"limits": {"cpu": "1"}}}]}
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    (tmp_path / "web.json").write_text(json.dumps(made | {"spec": {"replicas": 3, "template": {"spec": web}}}))
    api.put("/api/v1/limitranges", "gives", namespace="nlp", spec={"limits": [GIVES]})
    reviewed = json.loads((await fairgate("review", tmp_path / "web.json", "-n", "nlp", "-o", "json")).stdout)
    assert (reviewed["summary"]["pods"], reviewed["summary"]["gpus"]) == (3, "3")
    explained = json.loads((await fairgate("explain", tmp_path / "web.json", "-n", "nlp", "-o", "json")).stdout)
    assert explained[0]["gpus"] == "1"
    elsewhere = json.loads((await fairgate("review", tmp_path / "web.json", "-n", "vision", "-o", "json")).stdout)
    assert elsewhere["summary"]["gpus"] == "0"


@pytest.mark.parametrize(
    "containers",
    [[container(gpus="one")], "none"],
    ids=["an amount", "no list"],
)
async def test_an_object_that_cannot_be_read_is_left_out_with_one_note(api, fairgate, tmp_path, containers):
    api.faults.clear()
    api.put("/api/v1/nodes", "gpu-1", status={"allocatable": {"nvidia.com/gpu": "8"}})
    api.put("/api/v1/pods", "odd", namespace="vision", spec={"containers": containers, "nodeName": "gpu-1"})
    (tmp_path / "p.yaml").write_text(POLICY)
    for words in (("queue", "-o", "json"), ("policy", "diff", tmp_path / "p.yaml")):
        found = await fairgate(*words)
        assert found.exit_code == 0, found.stderr
        assert found.stderr.count("1 object could not be read: ") == 1
        assert "(Pod vision/odd)" in found.stderr


async def test_unreadable_events_are_omitted_with_one_note(api, fairgate):
    forbid(api, "/api/v1/namespaces/nlp/events")
    done = await fairgate("explain", "pod/mine", "-n", "nlp")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Pod nlp/mine")
    assert done.stderr.count("Events are not shown") == 1
    assert done.stderr.count("free room is unknown") == 1


async def test_unreadable_pods_are_not_counted_as_zero(api, fairgate):
    deployment(api)
    forbid(api, "/api/v1/namespaces/nlp/pods")
    done = await fairgate("explain", "deploy/web", "-n", "nlp")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Deployment nlp/web, one of 3\n")
    assert "exist" not in done.stdout
    missing = await fairgate("explain", "pod/mine", "-n", "nlp")
    assert missing.exit_code == 2
    assert "you may not list the pods of namespace nlp" in missing.stderr


CONTEXT = {"name": "it", "context": {"cluster": "it", "user": "me", "namespace": "nlp"}}
NEW = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}, "spec": {"containers": [container(gpus=1)]}}


async def test_commands_look_into_the_namespace_of_the_context(api, fairgate, tmp_path):
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(yaml.safe_load(config.read_text()) | {"contexts": [CONTEXT]}))
    gate = [{"name": "fairgate.dev/queue"}]
    labels = {"labels": {"fairgate.dev/team": "nlp"}}
    gated = {"containers": [container(gpus=2)], "schedulingGates": gate}
    api.put("/api/v1/pods", "next", namespace="nlp", spec=gated, metadata=labels)
    [explained] = json.loads((await fairgate("explain", "pod/mine", "-o", "json")).stdout)
    assert (explained["subject"], explained["team"]) == ("Pod nlp/mine", "nlp")
    line = json.loads((await fairgate("queue", "-o", "json")).stdout)
    assert [(pod["namespace"], pod["name"]) for pod in line["pods"]] == [("nlp", "next")]
    (tmp_path / "new.json").write_text(json.dumps(NEW))
    reviewed = await fairgate("review", tmp_path / "new.json", "-o", "json")
    assert reviewed.exit_code == 0, reviewed.output
    found = json.loads(reviewed.stdout)
    assert (found["workloads"][0]["namespace"], found["world"]["source"]) == ("nlp", "cluster")
    other = json.loads((await fairgate("review", tmp_path / "new.json", "-n", "vision", "-o", "json")).stdout)
    assert other["workloads"][0]["namespace"] == "vision"


async def test_a_review_beside_a_kubeconfig_reads_the_policy_in_force_and_the_cluster(api, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "config", api.url)))
    monkeypatch.delenv("FAIRGATE_POLICY", raising=False)
    (tmp_path / "new.json").write_text(json.dumps(NEW))
    command = ["review", str(tmp_path / "new.json"), "-n", "nlp", "-o", "json"]
    done = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["world"]["source"] == "cluster"
    assert found["workloads"][0]["pods"][0]["tier"] == "guaranteed"
    (tmp_path / "p.yaml").write_text(POLICY)
    with_policy = [*command, "--policy", str(tmp_path / "p.yaml")]
    done = await asyncio.to_thread(CliRunner().invoke, main, with_policy)
    assert json.loads(done.stdout)["world"]["source"] == "empty", "in CI a kubeconfig may lie about"
    for name in ("KUBECONFIG", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    done = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert (done.exit_code, "give --policy DIR" in done.stderr) == (2, True)


def publish(api, *, at=None, held=7, autoscalers=(), **fields):
    """Publish the room of a cluster with two nodes: pods of vision hold 7 of the 8 GPUs of the first, three wait."""
    full = make.world(parse({"p": POLICY.encode()}, origin="p"), [make.node("n0", gpus=8), make.node("n1", gpus=4)])
    for number in range(held):
        full.set_pod(make.resident(1, uid=f"secret-{number}", namespace="vision", name="secret", node=NodeName("n0")))
    [mine] = [each for each in api.objects["/api/v1/pods"].values() if each["metadata"]["name"] == "mine"]
    full.set_pod(make.resident(2, uid=mine["metadata"]["uid"], namespace="nlp", node=NodeName("n1")))
    for number in range(3):
        full.set_waiting(waiting(f"secret-w{number}", 1, namespace="vision", created=number))
    full.autoscalers = frozenset(autoscalers)
    made = Anonymizer(full)
    list(made.steps())
    report = room_report(made.result(), at=reports.written_at(time.time() if at is None else at))
    api.put(reports.PATH, reports.ROOM, room=msgspec.to_builtins(report) | fields)


async def test_with_what_the_leader_publishes_room_places_and_the_largest_job_are_known(api, fairgate, tmp_path):
    publish(api)
    done = await fairgate("status", "-n", "nlp", "-o", "json")
    assert done.stderr == "fairgate: of other namespaces pods are counted and not named\n"
    status = json.loads(done.stdout)
    assert [(each["free"], each["largestPod"]) for each in status["free"]] == [(5, 4)]
    assert {each["name"]: each["used"] for each in status["teams"]} == {"nlp": "2", "vision": "7"}

    (tmp_path / "new.json").write_text(json.dumps(NEW | {"metadata": {"name": "new", "namespace": "nlp"}}))
    [explained] = json.loads((await fairgate("explain", tmp_path / "new.json", "-n", "nlp", "-o", "json")).stdout)
    assert (explained["outcome"], explained["nodes"]) == ("admitted", ["n0", "n1"])
    refused = await fairgate("explain", tmp_path / "new.json", "-n", "nlp", "--node", "n9")
    assert "there is no node n9" in refused.stderr
    everything = done.output + refused.output + json.dumps(explained)
    assert "secret" not in everything


async def test_the_place_in_line_counts_those_of_others_and_shows_none_of_them(api, fairgate):
    labels = {"labels": {"fairgate.dev/team": "nlp"}}
    gated = {"containers": [container(gpus=2)], "schedulingGates": [{"name": "fairgate.dev/queue"}]}
    api.put("/api/v1/pods", "next", namespace="nlp", spec=gated, metadata=labels)
    publish(api, held=0)
    api.put(LEDGERS, "vision", status={"team": "vision", "used": "0"})
    done = await fairgate("queue", "-n", "nlp", "-o", "json")
    [row] = json.loads(done.stdout)["pods"]
    assert (row["name"], row["placeInTeam"], row["place"]) == ("next", 1, 3)
    assert "secret" not in done.output


async def test_a_room_that_cannot_be_used_is_named_in_one_line(api, fairgate):
    for fields, why in (
        ({"at": 0}, "s ago for the last time"),
        ({"format": 99}, "this version cannot read what is published: it has format 99"),
        ({"content": "", "omitted": "everything: it is large"}, "it omits everything: it is large"),
        ({"content": "!"}, "its content cannot be read"),
    ):
        publish(api, **fields)
        done = await fairgate("status", "-n", "nlp")
        assert done.exit_code == 0
        assert why in done.stderr
        assert done.stderr.count("\n") == 1
    api.faults[f"get {reports.PATH}/{reports.ROOM}"] = deque([Answer(403)])
    forbidden = await fairgate("status", "-n", "nlp")
    assert "free room is unknown: ask an admin for `kubectl create clusterrolebinding" in forbidden.stderr


async def test_what_the_leader_found_of_autoscalers_counts_for_those_who_may_not_look(api, fairgate, tmp_path):
    api.faults[f"get {STATUS_PATH}"] = deque([Answer(403)] * 9)
    publish(api, autoscalers=(Autoscaler.CLUSTER_AUTOSCALER,))
    (tmp_path / "p.yaml").write_text(POLICY)
    saved = await fairgate("world", "--policy", tmp_path / "p.yaml", "-n", "nlp", "-o", "json")
    kinds = [each["kind"] for each in json.loads(saved.stdout)["items"]]
    assert kinds.count("ConfigMap") == 1
    publish(api)
    saved = await fairgate("world", "--policy", tmp_path / "p.yaml", "-n", "nlp", "-o", "json")
    assert "ConfigMap" not in saved.stdout
