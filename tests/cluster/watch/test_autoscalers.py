"""Autoscalers of a cluster over HTTP: found, gone again, and what cannot be read changes nothing."""

import json

import pytest

from tests.cluster.support.fake_api import Answer, Body
from tests.cluster.support.stores import FAST, until
from tests.cluster.watch.test_feed import feeding
from tests.core.support import make
from webhook.cluster.api.client import ClusterError
from webhook.cluster.watch.feed import AutoscalerWatch, Feed, FoundAutoscalers, find_autoscalers
from webhook.core.model.node import Autoscaler
from webhook.kube.nodes.nodes import KARPENTER_PATHS, STATUS_PATH, objects_of

NOW = 1_790_000_000.0
BOTH = frozenset(Autoscaler)
DISCOVERY, OLD_DISCOVERY = KARPENTER_PATHS


@pytest.fixture
def answer(api):
    """Have the API server answer the next request for a path."""
    return lambda path, with_: api.faults[f"get {path}"].append(with_)


def served(*names):
    kinds = {"nodepools": "NodePool", "nodeclaims": "NodeClaim"}
    resources = [{"name": name, "kind": kinds[name], "namespaced": False} for name in names]
    return Body(json.dumps({"resources": resources}).encode())


KARPENTER = served("nodepools", "nodeclaims")


def running(at):
    (found,) = objects_of({Autoscaler.CLUSTER_AUTOSCALER}, at=at)
    return Body(json.dumps(found).encode())


@pytest.mark.parametrize(
    ("answers", "want"),
    [
        ({}, set()),
        ({DISCOVERY: KARPENTER}, {Autoscaler.KARPENTER}),
        ({DISCOVERY: Answer(404), OLD_DISCOVERY: KARPENTER}, {Autoscaler.KARPENTER}),
        ({DISCOVERY: served("nodepools")}, set()),
        ({STATUS_PATH: running(4e9)}, {Autoscaler.CLUSTER_AUTOSCALER}),
        ({STATUS_PATH: running(NOW)}, set()),
        ({DISCOVERY: KARPENTER, STATUS_PATH: running(4e9)}, BOTH),
    ],
    ids=["none", "Karpenter", "an old one", "half of one", "Cluster Autoscaler", "a status of last year", "both"],
)
async def test_they_are_found(connection, answer, answers, want):
    for path, with_ in answers.items():
        answer(path, with_)
    assert await find_autoscalers(connection) == FoundAutoscalers(frozenset(want))


async def test_without_the_right_to_the_status_karpenter_is_found_all_the_same(connection, answer):
    answer(DISCOVERY, KARPENTER)
    answer(STATUS_PATH, Answer(403))
    found = await find_autoscalers(connection)
    assert found.autoscalers == {Autoscaler.KARPENTER}
    assert "get configmaps" in found.why_unsure


@pytest.mark.parametrize("fault", [Answer(500), Body(b"[]"), Body(b"\xff")], ids=["an error", "a list", "no JSON"])
async def test_what_cannot_be_read_changes_nothing_and_is_said_once(connection, answer, fault):
    world, noted = make.world(), []
    watch = AutoscalerWatch(connection, world, note=noted.append)
    answer(DISCOVERY, KARPENTER)
    await watch.look()
    assert noted == [FoundAutoscalers(frozenset({Autoscaler.KARPENTER}))]
    for _ in range(2):
        answer(DISCOVERY, fault)
        await watch.look()
    assert world.autoscalers == {Autoscaler.KARPENTER}
    assert [bool(each.why_unsure) for each in noted] == [False, True]
    answer(DISCOVERY, fault)
    with pytest.raises(ClusterError):
        await find_autoscalers(connection)
    await watch.look()
    assert (world.autoscalers, watch.why_unsure) == (frozenset(), "")


async def test_a_feed_has_looked_for_them_once_it_is_synced(connection, answer):
    world = make.world()
    answer(STATUS_PATH, running(4e9))
    feed = Feed(connection, (), pace=FAST, autoscalers=AutoscalerWatch(connection, world))
    async with feeding(feed):
        await feed.wait_synced()
        assert world.autoscalers == {Autoscaler.CLUSTER_AUTOSCALER}
        await until(lambda: feed.readiness() is None)
