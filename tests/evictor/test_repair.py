"""Stranded pods are deleted if a controller replaces them, and reported otherwise."""

import asyncio
import os
import time
from dataclasses import replace

from tests.evictor.support.stage import PODS
from webhook.core.reclaim.reclaim_index import STRANDED_SECONDS
from webhook.evictor.cluster_view import ClusterView
from webhook.evictor.repair import Repair
from webhook.observe.logs import LineWriter, LogFormat, Logs


async def looked(stage):
    """Check once what the API server has."""
    cluster_view = ClusterView(stage.policy)
    feed = cluster_view.feed(stage.connection)
    watching = asyncio.create_task(feed.run())
    nowhere = os.open(os.devnull, os.O_WRONLY)
    logs = Logs(LineWriter(nowhere), log_format=LogFormat.JSON)
    later = time.time() + STRANDED_SECONDS
    repair = Repair(stage.context(cluster_view, logs, why_stale=feed.readiness, clock=lambda: later))
    try:
        await feed.wait_synced()
        await repair.look()
        await repair.look()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        os.close(nowhere)


async def test_a_controllers_pod_is_replaced(stage):
    stage.node("n0")
    stage.pinned("web", to="lost", controller=("ReplicaSet", "web"))
    await looked(stage)
    assert not stage.api.objects[PODS]
    assert stage.reasons() == ["Replaced"]


async def test_a_bare_pod_gets_one_event_and_is_not_replaced(stage):
    stage.node("n0")
    stage.pinned("bare", to="lost")
    await looked(stage)
    assert stage.names() == {"bare"}
    assert stage.reasons() == ["Stranded"]


async def test_a_pod_inside_its_share_is_replaced_where_others_borrow_on_another_node(stage):
    """Its node was free for a moment, and went to the pod for which reclaim had freed it."""
    stage.node("n0")
    stage.node("n1")
    stage.asker("was-faster", gpus=4, node="n0")
    stage.borrower("borrows", on="n1", gpus=4)
    stage.pinned("web", to="n0", controller=("Job", "web"))
    await looked(stage)
    assert stage.names() == {"was-faster", "borrows"}
    assert stage.reasons() == ["Replaced"]


async def test_a_pod_whose_node_exceeds_the_skew_is_replaced(stage):
    like = {"fairgate.dev/team": "team-b"}
    for name in ("n0", "n1"):
        stage.node(name, labels={"host": name})
    stage.bare("there", team="team-b", node="n0", labels=like)
    spread = {"topologyKey": "host", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    beyond_the_list = {"nodeAffinityPolicy": "Ignore", "labelSelector": {"matchLabels": like}}
    stage.pinned("web", to="n0", controller=("ReplicaSet", "web"), topologySpreadConstraints=[spread | beyond_the_list])
    await looked(stage)
    assert stage.names() == {"there"}
    assert stage.reasons() == ["Replaced"]


async def test_a_pod_whose_node_has_room_is_not_replaced(stage):
    stage.node("n0")
    stage.pinned("web", to="n0", controller=("ReplicaSet", "web"))
    await looked(stage)
    assert stage.names() == {"web"}
    assert stage.events == []


NEVER = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": '0/1 nodes are available: persistentvolumeclaim "missing" not found.',
}


async def test_a_pod_that_something_else_than_room_keeps_off_is_deleted_after_its_time(stage):
    """The second look comes after the bound, counted from the first."""
    stage.node("n0")
    stage.policy = replace(stage.policy, reclaim=replace(stage.policy.reclaim, start_within_seconds=0))
    stage.borrower("never", on=None, gpus=2, status={"conditions": [NEVER]})
    stage.asker("waits", gpus=2)
    await looked(stage)
    assert stage.names() == {"waits"}
    assert stage.reasons() == ["NeverStarted"]
    (event,) = stage.events
    assert event.message == (
        "deleted: kept off every node by something else than room, while 2 GPUs were charged for it: "
        'persistentvolumeclaim "missing" not found'
    )


async def test_before_its_time_and_where_policy_protects_it_such_a_pod_stays(stage):
    stage.node("n0")
    stage.borrower("never", on=None, status={"conditions": [NEVER]})
    await looked(stage)
    rules = replace(stage.policy.reclaim, start_within_seconds=0, protected_namespaces=("team-a",))
    stage.policy = replace(stage.policy, reclaim=rules)
    await looked(stage)
    assert stage.names() == {"never"}
    assert stage.reasons() == []
