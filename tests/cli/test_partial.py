"""What commands say where RBAC allows a part: over real HTTP, each refusal once, and at once."""

import asyncio
import json
from collections import deque

import pytest
from click.testing import CliRunner

from tests.builders import container
from tests.cluster.support.fake_api import Answer, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from webhook.cli.main import main
from webhook.kube.ledger import reports
from webhook.policy.load import parse

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


async def test_sums_of_all_teams_come_from_their_ledgers(api, fairgate):
    done = await fairgate("status", "-n", "nlp", "-o", "json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert {team["name"]: (team["used"], team["borrowed"]) for team in told["teams"]} == {
        "nlp": ("2", "0"),
        "vision": ("7", "3"),
    }
    assert done.stderr.count("not shown, for lack of rights") == 1
    assert {asked.verb for asked in api.asked} <= {"list", "get"}, "nothing is watched"
    refused = [asked.path for asked in api.asked if asked.path in CLUSTER_WIDE]
    assert len(refused) == len(set(refused)), "no refusal is asked for twice"


async def test_sums_that_no_whole_number_of_units_divides_are_read(api, fairgate):
    status = {"team": "vision", "used": "7/81559", "reserved": "1", "preemptible": "7/81559", "waiting": "0"}
    api.put(LEDGERS, "vision", status=status)
    done = await fairgate("status", "-n", "nlp", "-o", "json")
    assert done.exit_code == 0, done.output
    told = {team["name"]: (team["used"], team["borrowed"]) for team in json.loads(done.stdout)["teams"]}
    assert told["vision"] == ("81566/81559", "7/81559")


async def test_without_ledgers_the_sums_are_of_what_is_shown_and_said_to_be(api, fairgate):
    forbid(api, LEDGERS)
    done = await fairgate("status", "-n", "nlp", "-o", "json")
    assert done.exit_code == 0
    assert "bind the ClusterRole fairgate-viewer to you" in done.stderr
    assert json.loads(done.stdout)["teams"][1]["used"] == "0"


async def test_who_may_read_nothing_is_told_so_at_once(api, fairgate):
    forbid(api, LEDGERS, "/api/v1/namespaces/default/pods", "/api/v1/namespaces/nlp/pods")
    for kind in ("resourceclaims", "resourceclaimtemplates"):
        forbid(api, *(f"/apis/resource.k8s.io/v1/namespaces/{each}/{kind}" for each in ("default", "nlp")))
    api.faults["get /api/v1/namespaces/default"] = deque([Answer(403)])
    api.faults["get /api/v1/namespaces/nlp"] = deque([Answer(403)])
    api.missing.add("/apis/scheduling.k8s.io/v1beta1/podgroups")
    forbid(api, "/apis/scheduling.k8s.io/v1beta1/podgroups")
    done = await fairgate("world", "-n", "nlp")
    assert done.exit_code == 2
    assert "may read neither nodes, pods, namespaces nor TeamLedgers" in done.stderr


POLICIES = {
    "forbidden": ("may not be read", "ClusterRole fairgate-viewer"),
    "missing": ("no policy is published", "--policy"),
    "omitted": ("is not published: too large", "--policy"),
    "newer": ("this version does not understand", "--policy"),
}


@pytest.mark.parametrize("case", POLICIES)
async def test_where_no_policy_can_be_had_the_way_to_one_is_told(api, fairgate, case):
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
    told = await fairgate("explain", "pod/mine", "-n", "nlp", "-o", "json")
    assert json.loads(told.stdout)[0]["outcome"] == "admitted"


def test_a_world_file_says_no_policy():
    done = CliRunner().invoke(main, ["status", "--world", "world.yaml"])
    assert done.exit_code == 2
    assert "give --policy DIR: only a live cluster says which policy is in force" in done.stderr


def deployment(api):
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container(gpus=2)]}}
    spec = {"replicas": 3, "template": template}
    api.put("/apis/apps/v1/deployments", "web", namespace="nlp", spec=spec, apiVersion="apps/v1", kind="Deployment")


async def test_a_workload_is_explained_to_who_may_read_one_namespace(api, fairgate):
    deployment(api)
    done = await fairgate("explain", "deploy/web", "-n", "nlp", "--node", "gpu-1")
    assert done.exit_code == 0, done.output
    assert "Deployment nlp/web" in done.stdout
    assert "0 of 3 pods exist" in done.stdout
    assert "not looked at: you may not list all nodes and pods" in done.stdout
    assert "reclaim" not in done.stdout
    assert done.stderr.count("fairgate:") == 1
    asked = [each.path for each in api.asked]
    assert not [path for path in asked if "poddisruptionbudgets" in path or "leases" in path], "of no use here"


async def test_events_that_may_not_be_read_are_left_out_with_one_note(api, fairgate):
    forbid(api, "/api/v1/namespaces/nlp/events")
    done = await fairgate("explain", "pod/mine", "-n", "nlp")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Pod nlp/mine")
    assert done.stderr.count("Events are not shown") == 1
    assert done.stderr.count("not shown, for lack of rights") == 1


async def test_pods_that_may_not_be_read_are_not_counted_as_none(api, fairgate):
    deployment(api)
    forbid(api, "/api/v1/namespaces/nlp/pods")
    done = await fairgate("explain", "deploy/web", "-n", "nlp")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Deployment nlp/web, one of 3\n")
    assert "exist" not in done.stdout
    missing = await fairgate("explain", "pod/mine", "-n", "nlp")
    assert missing.exit_code == 2
    assert "you may not list the pods of namespace nlp" in missing.stderr
