"""Rows of the map: what each GPU has on it, what a viewer of some namespaces sees of it, and the order."""

import msgspec

from tests import builders as b
from tests.page.support.pages import policy_of, state_of
from webhook.page.views.gpu_map import RowReader, by_fragmentation, encode, holders_of, seen_by
from webhook.page.views.viewer import Viewer

POOLS = """
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams: [{name: vision, namespaces: [vision], gpus: {guaranteed: 8, limit: 16}}]
pools:
  - {name: a100, nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}
  - {name: t4, nodeSelector: {nvidia.com/gpu.product: Tesla-T4}}
"""


def rows_of(state):
    reader = RowReader(state.world)
    found = (reader.row(node) for node in state.world.fleet.nodes())
    return {row.node: row for row in found if row is not None}


def test_a_row_says_which_pod_has_which_gpu_on_what_terms():
    row = rows_of(state_of())["gpu-2"]
    assert [(pod.namespace, pod.name, pod.team, pod.borrowed) for pod in row.pods] == [
        ("vision", "eval", "vision", True),
        ("vision", "train-2", "vision", False),
    ]
    [group] = row.groups
    assert [device.parts for device in group.devices] == [((0, 1),)] * 4 + [((1, 1),)] * 4
    assert (row.free, row.stranded, row.state, row.held) == (0, 0, "", False)
    assert row.pods[1].owner == "Job/train"
    assert row.pods[1].since == 1_795_338_000


def test_shared_gpus_are_filled_by_part_and_closed_and_held_nodes_say_so():
    rows = rows_of(state_of())
    [group] = rows["t4-1"].groups
    assert [device.pieces for device in group.devices] == [4] * 4
    assert [sum(pieces for _, pieces in device.parts) for device in group.devices] == [4, 2, 0, 0]
    assert rows["gpu-4"].state == "cordoned"
    assert rows["gpu-10"].held
    assert (rows["gpu-10"].free, rows["gpu-10"].stranded) == (5, 5)
    assert "cpu-1" not in rows


def test_a_row_names_the_pools_and_the_domain_of_its_node():
    zoned = b.node("n1", gpus=8, model=b.A100, labels={"topology.kubernetes.io/zone": "z1"})
    row = rows_of(state_of([zoned], policy=policy_of(POOLS)))["n1"]
    assert (row.pools, row.domain) == (("a100",), "z1")


def test_a_viewer_of_some_namespaces_sees_own_pods_and_others_without_a_name():
    row = rows_of(state_of())["t4-1"]
    seen = seen_by(row, Viewer("nina", frozenset({"nlp"})))
    assert sorted(pod.name for pod in seen.pods) == ["", "", "", "chat"]
    text = encode(seen).decode()
    assert "chat" in text
    for hidden in ("api-0", "nightly", '"serving"'):
        assert hidden not in text
    assert seen_by(row, Viewer("v", frozenset({"vision"}))) is None
    assert seen_by(row, Viewer()) is row


def test_rows_are_json_that_reads_back():
    row = rows_of(state_of())["mig-1"]
    assert msgspec.json.decode(encode(row), type=type(row)) == row
    assert {pod.name: held for pod, held in holders_of(row)}["slices"] == "nvidia.com/mig-1g.10gb 3"


def test_the_most_fragmented_nodes_come_first_and_full_ones_last():
    rows = rows_of(state_of())
    order = [row.node for row in by_fragmentation(list(rows.values()))]
    assert order.index("gpu-10") < order.index("gpu-4") < order.index("gpu-2")
