"""The three scenarios that Fairgate is for, on the embedded world: four nodes of ten GPUs, two teams."""

import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.blackbox.api import Api
from tests.blackbox.objects import FOUR_NODES, TIER, owned, pod
from tests.blackbox.server import Server, serving

CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"


def teams(limit_a):
    return {
        "teams": [
            {"name": "a", "namespaces": ["team-a"], "gpus": {"guaranteed": 20, "limit": limit_a}},
            {"name": "b", "namespaces": ["team-b"], "gpus": {"guaranteed": 20, "limit": 20}},
        ]
    }


@pytest.fixture
def start(tmp_path):
    """Serve with this limit for team A."""
    with_server = []

    def begin(limit_a):
        context = serving(tmp_path, policy=teams(limit_a), world=FOUR_NODES)
        with_server.append(context)
        return context.__enter__()

    yield begin
    for context in with_server:
        context.__exit__(None, None, None)


def first_node(made):
    assert made.is_allowed, made.status
    return made.response["auditAnnotations"]["nodes"]


def test_greedy_team(start):
    server = start(20)
    api = Api(server)
    for n in range(8):
        made = owned(pod(f"deployed-{n}", "team-a"), "ReplicaSet", "web-7d9")
        assert api.create(made, user=CONTROLLER).is_allowed
    for n in range(8):
        made = owned(pod(f"worker-{n}", "team-a"), "Job", "train")
        assert api.create(made, user="system:serviceaccount:kube-system:job-controller").is_allowed
    for n in range(4):
        assert api.create(pod(f"bare-{n}", "team-a")).is_allowed
    refused = api.create(pod("one-more", "team-a"))
    assert refused.status["code"] == 403
    assert refused.status["message"].startswith("exceeded quota: team a: requested 1, limit 20, used 20")
    assert "team-a/Job/train 8, team-a/ReplicaSet/web-7d9 8" in refused.status["message"]
    assert not any(made.is_allowed for made in race(server, [pod(f"r{n}", "team-a") for n in range(40)]))
    for n in range(10):
        made = api.create(pod(f"b{n}", "team-b", gpus=2))
        assert made.labels[TIER] == "guaranteed"
        assert made.decision["nodes"]
    assert server.all_charged() == {("a", "guaranteed"): 20, ("b", "guaranteed"): 20}


def test_forty_requests_race_for_twenty_gpus(start):
    server = start(20)
    made = race(server, [pod(f"p{n}", "team-a") for n in range(40)])
    assert Counter(one.is_allowed for one in made) == {True: 20, False: 20}
    assert server.all_charged() == {("a", "guaranteed"): 20}


def race(server, manifests):
    """Create all at once, eight at a time, each of the eight on its own connection."""

    def client(mine):
        api = Api(Server(server.folder, server.url, server.process))
        made = [retried(api, manifest) for manifest in mine]
        api.server.hang_up()
        return made

    with ThreadPoolExecutor(8) as pool:
        return [*itertools.chain.from_iterable(pool.map(client, [manifests[n::8] for n in range(8)]))]


def retried(api, manifest):
    """Create as a controller does: a 429 is tried again."""
    for _ in range(10):
        made = api.create(manifest)
        if made.is_allowed or made.status["code"] != 429:
            break
    return made


def test_fragmentation(start):
    """Three pods of three GPUs fill a node; a pod of eight then still finds a whole one."""
    server = start(40)
    api = Api(server)
    nodes = Counter()
    for n in range(6):
        nodes[first_node(api.create(pod(f"a{n}", "team-a", gpus=3)))] += 3
    assert sorted(nodes.values()) == [9, 9]
    large = api.create(pod("b", "team-b", gpus=8))
    assert first_node(large) not in nodes
    assert large.labels[TIER] == "guaranteed"
    assert large.warnings == ()


@pytest.mark.parametrize("gpus", [1, 5])
def test_idle_share(start, gpus):
    """Team A runs 30: the first 20 are its own, the next 10 are borrowed."""
    server = start(40)
    api = Api(server)
    tiers = [api.create(pod(f"p{n}", "team-a", gpus=gpus)).labels[TIER] for n in range(30 // gpus)]
    assert tiers == ["guaranteed"] * (20 // gpus) + ["preemptible"] * (10 // gpus)
    assert server.all_charged() == {("a", "guaranteed"): 20, ("a", "preemptible"): 10}
