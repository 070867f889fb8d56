"""The server and the evictor watch the same kinds, except for what only one of them needs."""

from dataclasses import replace
from types import SimpleNamespace

from tests.core.support import make
from webhook.cluster.watch.world_kinds import followed, reclaim_kinds, world_kinds
from webhook.core.model.policy import ReclaimRules
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.world.world import World
from webhook.kube.objects import objects

BOUNDS = {"jobs", "poddisruptionbudgets"} | {
    f"{framework}jobs" for framework in ("jax", "mx", "paddle", "pytorch", "tf", "xgboost")
}


def evictor_kinds(world, changes):
    pods = SimpleNamespace(set_pod=None, remove_pod=None)
    node, device, other = (
        lambda *change, name=name: changes.append((name, *change)) for name in ("node", "device", "other")
    )
    return reclaim_kinds(world, ReclaimIndex(ReclaimRules()), pods=pods, node=node, device=device, other=other)


def test_both_watch_the_same_objects_in_the_same_way():
    world = World(make.policy())
    server, evictor = (
        {kind.name: (kind.path, dict(kind.params), kind.is_optional, kind.trim) for kind in kinds}
        for kinds in (world_kinds(world, pods=world), evictor_kinds(world, []))
    )
    assert server.keys() - evictor.keys() == {"priorityclasses"}
    assert evictor.keys() - server.keys() == BOUNDS
    assert {name: server[name] for name in server.keys() & evictor} == {
        name: evictor[name] for name in server.keys() & evictor
    }


def test_for_the_evictor_a_held_node_is_open_and_each_change_is_reported_once_applied():
    world, changes = World(make.policy()), []
    nodes = next(kind for kind in evictor_kinds(world, changes) if kind.name == "nodes")
    taint = objects.Taint(key="fairgate.dev/held", value="h", effect="NoSchedule")
    held = objects.Node(metadata=objects.ObjectMeta(name="n0"), spec=objects.NodeSpec(taints=[taint]))
    assert nodes.apply(held)
    assert [node.taints for node in world.fleet.nodes()] == [()]
    nodes.remove("n0")
    assert changes == [("node", held, "n0"), ("node", None, "n0")]


def test_an_object_that_is_not_kept_is_no_change():
    kept, changes = [], []
    kind = replace(world_kinds(World(make.policy()), pods=None)[0], apply=kept.append)
    held = objects.Node(metadata=objects.ObjectMeta(name="n0"))
    assert not followed(kind, lambda *change: changes.append(change)).apply(held)
    assert (kept, changes) == ([held], [])
