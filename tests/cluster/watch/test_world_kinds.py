"""The server and the evictor watch the same kinds, except for what only one of them needs."""

import json
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest

from tests import builders
from tests.core.support import make
from tests.kube.support.created import struct
from webhook.core.explain.team_rows import ledger_row
from webhook.core.model.amounts import TeamName
from webhook.core.model.constraints import Constraints, Tier
from webhook.core.model.decision import Charge
from webhook.core.model.policy import ReclaimRules
from webhook.core.quota.charges import InFlightCharge, LedgerRecord
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.world.world import World
from webhook.kube.ledger.team_ledger import decode, encode
from webhook.kube.objects import objects
from webhook.kube.pod import outcomes
from webhook.kube.pod.pods import unix_seconds
from webhook.kube.watched.kinds import ALIVE, FAILED
from webhook.kube.watched.world_kinds import VOLUMES, followed, note_outcome, reclaim_kinds, world_kinds

BOUNDS = {"jobs", "poddisruptionbudgets"} | {
    f"{framework}jobs" for framework in ("jax", "mx", "paddle", "pytorch", "tf", "xgboost")
}


def evictor_kinds(world, changes):
    pods = SimpleNamespace(set_pod=lambda _: None, remove_pod=None)
    ledger, node, device, other = (
        lambda *change, name=name: changes.append((name, *change)) for name in ("ledger", "node", "device", "other")
    )
    index = ReclaimIndex(ReclaimRules())
    return reclaim_kinds(world, index, pods=pods, ledger=ledger, node=node, device=device, other=other)


def test_both_watch_the_same_objects_in_the_same_way():
    world = World(make.policy())
    server, evictor = (
        {kind.name: (kind.path, dict(kind.params), kind.is_optional, kind.trim) for kind in kinds}
        for kinds in (world_kinds(world, pods=world), evictor_kinds(world, []))
    )
    assert server.keys() - evictor.keys() == {"priorityclasses"}
    assert evictor.keys() - server.keys() == {*BOUNDS, "teamledgers"}, "the server watches some of those itself"
    assert {name: server[name] for name in server.keys() & evictor} == {
        name: evictor[name] for name in server.keys() & evictor
    }


def pod_of(number, phase="Failed", reason="UnexpectedAdmissionError"):
    """A pod of team-a that n0 rejected, or started, as the API gives it."""
    made = builders.pod(f"p{number}", uid=f"u{number}", namespace="team-a", node="n0")
    return made | {"status": {"phase": phase, "reason": reason, "startTime": f"2026-01-01T00:00:{number:02}Z"}}


def show(kinds, manifest):
    """Apply a pod to the kinds whose field selector it meets."""
    is_failed = manifest["status"]["phase"] == "Failed"
    for kind in kinds:
        if kind.path == "/api/v1/pods" and kind.params in ({}, FAILED if is_failed else ALIVE):
            kind.apply(msgspec.json.decode(json.dumps(manifest), type=kind.item))


@pytest.mark.parametrize(
    "kinds_of",
    [
        pytest.param(lambda world: world_kinds(world, pods=world, lose=world.remove_pod), id="the server"),
        pytest.param(lambda world: world_kinds(world, pods=world), id="a command"),
        pytest.param(lambda world: evictor_kinds(world, []), id="the evictor"),
    ],
)
def test_each_learns_which_nodes_reject_pods_and_which_take_them_again(kinds_of):
    world = World(make.policy())
    world.set_node(make.node("n0"))
    world.tick(1_767_225_700)  # 2026-01-01T00:01:40Z
    kinds = kinds_of(world)
    for number in range(3):
        show(kinds, pod_of(number))
    [closed] = world.rejecting_nodes.closed()
    assert (closed.node, closed.team, closed.rejections) == ("n0", "team-a", 3)
    show(kinds, pod_of(30, "Running", ""))
    assert list(world.rejecting_nodes.closed()) == []


@pytest.mark.parametrize("gpus", [1, None], ids=["a pod with GPUs", "a pod without"])
def test_times_are_read_of_starts_alone_that_are_not_known(gpus, monkeypatch):
    world, read = World(make.policy()), []
    world.set_node(make.node("n0"))
    world.tick(1_767_225_700)
    monkeypatch.setattr(outcomes, "unix_seconds", lambda text: read.append(text) or unix_seconds(text))
    status = {"phase": "Running", "startTime": "2026-01-01T00:00:10Z"}
    shown = builders.pod(uid="u", namespace="team-a", node="n0", gpus=gpus) | {"status": status}
    earlier = shown | {"status": status | {"startTime": "2026-01-01T00:00:09Z"}}
    for manifest in (shown, shown, earlier, shown):
        note_outcome(world, struct(manifest))
    assert read == ([status["startTime"]] if gpus else [])


def test_for_the_evictor_a_held_node_is_open_and_each_change_is_reported_once_applied():
    world, changes = World(make.policy()), []
    nodes = next(kind for kind in evictor_kinds(world, changes) if kind.name == "nodes")
    taint = objects.Taint(key="fairgate.dev/held", value="h", effect="NoSchedule")
    held = objects.Node(metadata=objects.ObjectMeta(name="n0"), spec=objects.NodeSpec(taints=[taint]))
    assert nodes.apply(held)
    assert [node.taints for node in world.fleet.nodes()] == [()]
    nodes.remove("n0")
    assert changes == [("node", held, "n0"), ("node", None, "n0")]


def test_the_evictor_reads_of_ledgers_the_charges_of_pods_whose_room_it_makes():
    world, changes = World(make.policy()), []
    kind = next(kind for kind in evictor_kinds(world, changes) if kind.name == "teamledgers")
    charge = Charge(TeamName("team-a"), Tier.GUARANTEED, make.gpus(1))
    flights = {
        uid: InFlightCharge(make.resident(1, uid=uid), charge, None, takes_back=uid == "reclaims")
        for uid in ("plain", "reclaims")
    }
    body = json.loads(encode(LedgerRecord(flights), ledger_row(TeamName("team-a"), world), version=7))
    body["metadata"]["uid"] = "u"
    found = decode(json.dumps(body).encode())
    assert kind.apply(found)
    ((_, handle, charges),) = changes
    assert (handle, set(charges)) == ("u", {"reclaims"})
    kind.remove(kind.handle(found))
    assert changes[1:] == [("ledger", "u", {})]
    body["metadata"]["name"] = "another"
    assert not kind.apply(decode(json.dumps(body).encode())), "only the object of its team's name counts"


def test_an_object_that_is_not_kept_is_no_change():
    kept, changes = [], []
    kind = replace(world_kinds(World(make.policy()), pods=None)[0], apply=kept.append)
    held = objects.Node(metadata=objects.ObjectMeta(name="n0"))
    assert not followed(kind, lambda *change: changes.append(change)).apply(held)
    assert (kept, changes) == ([held], [])


def test_a_volume_narrows_the_nodes_of_its_claim_while_it_is_bound():
    world = World(make.policy())
    for name in ("n0", "n1"):
        world.set_node(make.node(name, labels={"zone": name}))
    kind = VOLUMES.watched(world)
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["n1"]}]}

    def show(phase):
        spec = {
            "claimRef": {"namespace": "team-a", "name": "home"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [zone]}},
        }
        body = {"metadata": {"name": "pv"}, "spec": spec, "status": {"phase": phase}}
        found = msgspec.json.decode(json.dumps(body), type=kind.item)
        return kind.apply(found)

    def usable():
        return world.fleet.names_of(world.fleet.matching(Constraints(volumes=("team-a/home",))))

    assert show("Bound")
    world.sort_nodes()
    assert usable() == ["n1"]
    assert not show("Released")
    kind.remove("pv")  # as the store does for what is no longer kept
    assert usable() == ["n0", "n1"]
    assert (kind.is_optional, kind.needs_right) == (True, False)
