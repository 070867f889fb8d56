"""The GPUs of a node, device by device."""

from fractions import Fraction

import pytest

from tests.core.support import claims
from tests.core.support.make import GPU, node, policy, resident, world
from webhook.core.explain.team_rows import board_of
from webhook.core.model.amounts import ONE_GPU, ResourceName

MEMORY = ResourceName("aliyun.com/gpu-mem")
SHARED = ResourceName("nvidia.com/gpu.shared")


def group(board, *, resource=GPU):
    [found] = [group for row in board.nodes for group in row.groups if group.resource == resource]
    return found


def test_pods_are_assigned_to_devices_in_the_order_of_their_names():
    place = world(
        nodes=[node("n", gpus=4)], residents=[resident(2, name="b", node="n"), resident(1, name="a", node="n")]
    )
    devices = group(board_of(place)).devices
    assert [[allocation.pod for allocation in device.allocations] for device in devices] == [
        ["team-a/a"],
        ["team-a/b"],
        ["team-a/b"],
        [],
    ]


@pytest.mark.parametrize(
    ("resource", "weight", "labels", "offered", "want"),
    [
        pytest.param(SHARED, ONE_GPU, {"nvidia.com/gpu.replicas": "4"}, 8, [4, 4], id="replicas by label"),
        pytest.param(GPU, ONE_GPU, {"nvidia.com/gpu.replicas": "4"}, 8, [4, 4], id="replicas under the plain name"),
        pytest.param(SHARED, ONE_GPU // 8, {}, 12, [8, 4], id="shares by their weight, with a rest"),
        pytest.param("nvidia.com/mig-1g.5gb", ONE_GPU // 7, {}, 3, [1, 1, 1], id="instances are devices"),
        pytest.param(GPU, ONE_GPU, {}, 2, [1, 1], id="whole GPUs"),
        pytest.param(MEMORY, Fraction(ONE_GPU, 23), {}, 46, [23, 23], id="shares that units do not divide by"),
        pytest.param(GPU, ONE_GPU, {}, 1000, [1000], id="more than can be drawn"),
    ],
)
def test_pieces_of_a_device(resource, weight, labels, offered, want):
    resource = ResourceName(resource)
    place = world(policy(resources={resource: weight}), [])
    made = node("n", gpus=0, labels=labels)
    place.set_node(type(made)(made.name, {**made.allocatable, resource: offered}, labels))
    assert [device.pieces for device in group(board_of(place), resource=resource).devices] == want


def test_more_than_a_nodes_allocatable_is_shown():
    place = world(nodes=[node("n", gpus=2)], residents=[resident(3, node="n")])
    found = group(board_of(place))
    assert (found.over, found.used, found.pieces) == (1, 3, 2)


def test_partitions_of_a_taken_device_are_not_free():
    place = claims.partitioned()
    place.set_pod(claims.resident("a", claims.SHARING, node="n0"))
    board = board_of(place)
    whole, parts = (
        group(board, resource=each) for each in (claims.GPU_CLASS.implicit_resource, claims.MIG_CLASS.implicit_resource)
    )
    assert [(each.pieces, each.used, each.free) for each in (whole, parts)] == [(1, 1, 0), (2, 0, 0)]
    assert [[device.shut for device in each.devices] for each in (whole, parts)] == [[0], [2]]
