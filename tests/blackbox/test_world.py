"""A cluster as `kubectl get nodes,pods -A -o yaml` prints it: charges by team, and nodes with room."""

import pytest

from tests.blackbox.api import Api
from tests.blackbox.objects import GPU, TEAM, TIER, node, owned, pod, running
from tests.blackbox.server import serving

POLICY = {
    "teams": [
        {"name": "a", "namespaces": ["team-a"], "gpus": {"guaranteed": 20, "limit": 20}},
        {"name": "b", "namespaces": ["team-b-*"], "gpus": {"guaranteed": 20, "limit": 40}},
    ],
    "exempt": {"namespaces": ["monitoring"]},
}


def labelled(manifest, team, tier):
    return manifest | {"metadata": manifest["metadata"] | {"labels": {TEAM: team, TIER: tier}}}


CORDONED = node("cordoned")
CORDONED["spec"]["unschedulable"] = True
NOT_READY = node("not-ready", conditions=[{"type": "Ready", "status": "Unknown"}])
TAINTED = node("tainted")
TAINTED["spec"]["taints"] = [{"key": "maintenance", "effect": "NoSchedule"}]

WORLD = [
    *(node(f"node-{i}") for i in range(4)),
    CORDONED,
    NOT_READY,
    TAINTED,
    node("no-cpu"),
    running(pod("done", "team-a", gpus=8), "node-0", phase="Succeeded"),
    running(pod("crashed", "team-a", gpus=8), "node-0", phase="Failed"),
    running(pod("going", "team-a", gpus=3), "node-0", deletionTimestamp="2026-01-01T00:00:00Z"),
    running(owned(pod("bypassed", "team-a", gpus=4), "ReplicaSet", "sneaky"), "node-1"),
    running(labelled(pod("borrows", "team-b-x", gpus=2), "b", "preemptible"), "node-2"),
    running(labelled(pod("own", "team-b-x", gpus=1), "b", "guaranteed"), "node-2"),
    pod("waits", "team-b-y", gpus=5) | {"status": {"phase": "Pending"}},
    running(pod("exporter", "monitoring", gpus=1), "node-3"),
    running(pod("stray", "unowned", gpus=2), "node-3"),
    running(pod("web", "shop", gpus=None, cpu="60"), "no-cpu"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("fairgate"), policy=POLICY, world=WORLD) as running:
        yield running


@pytest.fixture
def api(server):
    before = server.all_charged()
    api = Api(server)
    yield api
    api.delete_all()
    assert server.all_charged() == before


def test_charges_by_team(server):
    """Finished pods count nothing, terminating ones still do, bypassing pods count for their namespace."""
    charged = server.all_charged()
    assert charged[("a", "guaranteed")] == 7
    assert charged[("b", "preemptible")] == 2
    assert charged[("b", "guaranteed")] == 6
    assert server.charged("unassigned") == 3


def test_the_log_says_what_was_loaded(server):
    (policy,), (world,) = server.lines("policy loaded"), server.lines("world loaded")
    assert (policy["teams"], world["nodes"]) == (2, 8)


def test_teams_without_a_pod_have_their_series(tmp_path):
    with serving(tmp_path, policy=POLICY, world=[]) as server:
        found = {(labels["team"], labels["tier"]): value for labels, value in server.samples("fairgate_gpus_charged")}
    assert found == {(team, tier): 0 for team in "ab" for tier in ("guaranteed", "preemptible")}


def test_the_limit_counts_existing_pods(api):
    refused = api.create(pod("p", "team-a", gpus=14))
    assert refused.status["message"].startswith("exceeded quota: team a: requested 14, limit 20, used 7")
    assert "team-a/ReplicaSet/sneaky 4" in refused.status["message"]
    assert "team-a/Pod/going 3" in refused.status["message"]
    assert "at most 13 would pass now" in refused.status["message"]
    for n in range(2):
        assert api.create(pod(f"p{n}", "team-a", gpus=6)).is_allowed


def test_only_nodes_with_room_that_accept_the_pod_are_chosen(api):
    """node-0 has 7 free, node-1 6, node-2 7, node-3 7; the other four are closed or have no CPU left."""
    assert set(api.mutate(pod("p", "team-a", gpus=7)).decision["nodes"]) == {"node-0", "node-2", "node-3"}
    assert api.mutate(pod("p", "team-a", gpus=6)).decision["nodes"][0] == "node-1"
    tolerant = pod("p", "team-a", gpus=6, tolerations=[{"operator": "Exists"}])
    assert "tainted" in api.mutate(tolerant).decision["nodes"]
    assert not {"cordoned", "not-ready", "no-cpu"} & set(api.mutate(tolerant).decision["nodes"])
    assert "no-cpu" in api.mutate(pod("p", "team-a", gpus=6, cpu="1")).decision["nodes"]


def test_a_pod_that_fits_no_node_is_refused_and_one_that_finds_no_room_is_warned(api):
    too_large = api.create(pod("p", "team-a", gpus=11))
    assert not too_large.is_allowed
    text = f"no node could hold the pod: it asks for {GPU} 11, the largest of 8 nodes has 10; ask for less"
    assert too_large.status["message"].startswith(text)
    waits = api.mutate(pod("p", "team-b-x", gpus=8))
    assert waits.warnings[0].startswith(f"no node has cpu 6, {GPU} 8 free at once: the pod waits; ")


def test_a_deleted_pod_of_the_file_frees_its_gpus(server, api):
    """The last test, because it deletes pods of the shared world."""
    going = next(found for found in WORLD if found["metadata"]["name"] == "going")
    assert api.delete(going).is_allowed
    assert server.charged("a") == 4
    assert "node-0" in api.mutate(pod("p", "team-a", gpus=10)).decision["nodes"]
    back = api.create(pod("back", "team-a", gpus=3, nodeName="node-0"))
    assert back.is_allowed
    api.pods.clear()
