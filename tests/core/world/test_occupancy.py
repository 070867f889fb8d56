"""GPUs held on nodes, by team, model and tier."""

import pytest

from tests.core.support import make
from webhook.core.model.amount import ONE_GPU
from webhook.core.model.names import GpuModel, NodeName, ResourceName, TeamName
from webhook.core.model.node import Node
from webhook.core.model.tier import Tier
from webhook.core.world.occupancy import Occupancy, UsageKey, capacity_of

A100, H100 = GpuModel("A100"), GpuModel("H100")
N0, N1 = NodeName("n0"), NodeName("n1")


def seen(*pods):
    world = make.world(make.policy(), nodes=[make.node("n0", model=A100), make.node("n1", model=H100)])
    for pod in pods:
        world.set_pod(pod)
    found = Occupancy()
    for pod in pods:
        found.add(pod.uid, world)
    return found


def test_pods_add_up_by_team_model_of_the_node_and_tier():
    found = seen(
        make.resident(2, node=N0),
        make.resident(3, node=N0),
        make.resident(1, node=N0, tier="preemptible"),
        make.resident(4, node=N1, namespace="team-b"),
    )
    a, b = TeamName("team-a"), TeamName("team-b")
    assert found.by_holder == {
        UsageKey(a, A100, Tier.GUARANTEED): make.gpus(5),
        UsageKey(a, A100, Tier.PREEMPTIBLE): make.gpus(1),
        UsageKey(b, H100, Tier.GUARANTEED): make.gpus(4),
    }
    assert found.by_node == {N0: make.gpus(6), N1: make.gpus(4)}


@pytest.mark.parametrize(
    "pod",
    [make.resident(2), make.resident(0, node=N0), make.resident(2, promised=N0)],
    ids=["waits", "requests no GPU", "is promised a node"],
)
def test_a_pod_holds_nothing_that(pod):
    assert seen(pod) == Occupancy()


def test_a_terminating_pod_holds_its_gpus_to_the_end():
    assert seen(make.resident(2, node=N0, is_terminating=True)).by_node == {N0: make.gpus(2)}


def test_pods_that_bypassed_the_webhook_count_as_in_the_ledger():
    [holder] = seen(make.resident(2, node=N0, tier=None)).by_holder
    assert holder.tier is Tier.GUARANTEED


def test_a_removed_pod_adds_nothing():
    world = make.world(make.policy(), nodes=[make.node("n0")])
    found = Occupancy()
    found.add(make.resident(1).uid, world)
    assert found == Occupancy()


def test_a_nodes_gpus_are_counted_by_the_policys_weights():
    node = make.node("n0", gpus=2)
    slices, disk = ResourceName("nvidia.com/mig-1g.5gb"), ResourceName("example.com/disk")
    policy = make.policy(resources={make.GPU: ONE_GPU, slices: ONE_GPU // 7})
    mixed = Node(N0, {**node.allocatable, slices: 7, disk: 3})
    assert [capacity_of(each, policy) for each in (node, mixed)] == [make.gpus(2), make.gpus(3)]
