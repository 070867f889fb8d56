"""What explain says of reclaim is what the evictor plans on the same objects, charged pods in line included."""

import asyncio
import json

import msgspec
import pytest

from tests import builders as b
from webhook.cli.explain.reclaim import ClusterDetails, Evictions, node_holds_of
from webhook.cli.world_source import WorldObjects, world_of
from webhook.core.model.amounts import ONE_GPU, Uid
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.snapshot import Impossible, Possible, outlook, pods_within_share, select_pods, take_snapshot
from webhook.evictor.cluster_view import ClusterView
from webhook.kube.objects import keys
from webhook.policy.watch import parse

NOW = 1_790_000_000
POLICY = parse(
    {
        "p.yaml": b"""
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: a, namespaces: [a], gpus: {guaranteed: 0, limit: 16}}
  - {name: b, namespaces: [b], gpus: {guaranteed: 8, limit: 8}}
  - {name: c, namespaces: [c], gpus: {guaranteed: 8, limit: 8}}
reclaim: {minimumRuntime: 0s}
"""
    },
    origin="p",
)
META = {"code": "X", "policy": "p", "user": "ann", "at": "2026-09-20T00:00:00Z"}
DECISION = json.dumps({"demand": {"nvidia.com/gpu": "8"}, "gpus": "8", "nodes": [], "mode": "queue"} | META)
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
    "lastTransitionTime": "2026-09-21T00:00:00Z",
}


def pod(name, namespace, tier=None, *, created, **more):
    labels = {keys.TEAM: namespace} | ({keys.TIER: tier} if tier else {})
    made = b.pod(
        name, namespace=namespace, uid=f"u-{name}", gpus=8, labels=labels, annotations={keys.DECISION: DECISION}, **more
    )
    made["metadata"]["creationTimestamp"] = created
    return made


def objects(*, is_charged):
    third = pod("third", "c", "guaranteed", created="2026-09-21T00:00:00Z")
    third["status"] = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
    gates = [{"name": keys.QUEUE_GATE}]
    entry = {"uid": "u-owner", "ns": "b", "name": "owner", "gpus": 8 * ONE_GPU, "tier": "guaranteed", "reclaims": True}
    return (
        b.node("n1", gpus=8),
        pod("borrower", "a", "preemptible", created="2026-09-01T00:00:00Z", node="n1", phase="Running"),
        pod("owner", "b", created="2026-09-20T00:00:00Z", schedulingGates=gates),
        third,
        {
            "apiVersion": keys.OWN_API,
            "kind": keys.TEAM_LEDGER,
            "metadata": {"name": "b", "uid": "ledger-b", "resourceVersion": "7"},
            "status": {"team": "b"},
            "ledger": {"inFlight": [entry] if is_charged else []},
        },
    )


def evictor_view(found):
    """The evictor's view of the same objects, as its watches deliver them."""
    view = asyncio.run(_view())
    kinds = {watch.kind.name: watch.kind for watch in view.feed(None).watches}
    plurals = {"Node": "nodes", "Pod": "pods", keys.TEAM_LEDGER: "teamledgers"}
    for each in found:
        kind = kinds[plurals[each["kind"]]]
        kind.apply(msgspec.json.decode(msgspec.json.encode(each), type=kind.item))
    return view


async def _view():
    return ClusterView(POLICY, clock=lambda: NOW)


@pytest.mark.parametrize(("is_charged", "who"), [(True, "u-owner"), (False, "u-third")])
def test_room_that_goes_to_a_charged_pod_in_line_is_promised_to_no_other(is_charged, who):
    found = objects(is_charged=is_charged)
    world = world_of(WorldObjects(found), POLICY, name="w")
    evictions = Evictions.of(found, world, ClusterDetails(), node_holds_of(found))
    answers = {}
    for uid in ("u-owner", "u-third"):
        gpu_pod = evictions.reclaim_index.get(Uid(uid))
        answers[uid] = None if gpu_pod is None else outlook(gpu_pod, evictions.reclaim_index, world, now=NOW)
    promised = [uid for uid, each in answers.items() if isinstance(each, Possible)]
    assert promised == [who]
    assert is_charged is isinstance(answers["u-third"], Impossible)
    view = evictor_view(found)
    there = take_snapshot(view.reclaim_index, view.world, now=NOW)
    selected = select_pods(pods_within_share(view.reclaim_index, view.world), view.reclaim_index, now=NOW)
    assert [str(move.waiting.uid) for move in plan(selected.waiting, there).moves] == promised
