"""Rows of the map: what each GPU has on it, what a viewer of some namespaces sees of it, and the order."""

import msgspec

from tests import builders as b
from tests.addons.page.support.pages import policy_of, state_of
from tests.cli import sample_world
from tests.core.support import claims
from webhook.addons.page.views.gpu_map import RowReader, by_fragmentation, encode, holders_of, seen_by
from webhook.addons.page.views.teams import EVERYTHING, Viewer

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
    assert [(pod.namespace, pod.name, pod.team, pod.preemptible) for pod in row.pods] == [
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
    assert [(rows[name].free, rows[name].stranded) for name in ("gpu-4", "gpu-10")] == [(0, 0), (0, 0)]
    assert "cpu-1" not in rows


def test_a_row_names_the_pools_and_the_domain_of_its_node():
    zoned = b.node("n1", gpus=8, model=b.A100, labels={"topology.kubernetes.io/zone": "z1"})
    row = rows_of(state_of([zoned], policy=policy_of(POOLS)))["n1"]
    assert (row.pools, row.domain) == (("a100",), "z1")


NINA = Viewer("nina", frozenset({"nlp"}))
NINA_WITH_NODES = Viewer("nina", frozenset({"nlp"}), nodes=True)


def test_a_viewer_of_some_namespaces_sees_own_pods_on_the_nodes_that_they_name():
    row = rows_of(state_of())["t4-1"]
    seen = seen_by(row, NINA)
    assert [pod.name for pod in seen.pods] == ["chat"]
    assert (seen.node, seen.model, seen.pools, seen.state, seen.free) == ("t4-1", "", (), "", 0)
    assert [(device.pieces, device.parts) for group in seen.groups for device in group.devices] == [(1, ((0, 1),))]
    for hidden in ("api-0", "nightly", '"serving"', "Tesla"):
        assert hidden not in encode(seen).decode()
    assert seen_by(row, Viewer("v", frozenset({"vision"}))) is None
    assert seen_by(row, EVERYTHING) is row


def test_who_may_list_nodes_sees_their_gpus_and_not_which_others_have():
    rows = rows_of(state_of())
    seen = seen_by(rows["t4-1"], NINA_WITH_NODES)
    assert [pod.name for pod in seen.pods] == ["chat", ""]
    assert (seen.model, seen.free, seen.stranded) == (rows["t4-1"].model, 0, 0)
    assert [device.parts for group in seen.groups for device in group.devices] == [((0, 1), (1, 3)), *[((1, 4),)] * 3]
    other = seen_by(rows["gpu-2"], NINA_WITH_NODES)
    assert [pod.name for pod in other.pods] == [""]
    assert {device.parts for group in other.groups for device in group.devices} == {((0, 1),)}


def test_what_others_have_on_a_node_changes_nothing_of_what_is_seen():
    state = state_of()
    before = rows_of(state)
    for pod in [each for each in state.world.pods() if each.namespace != "nlp"]:
        state.world.remove_pod(pod.uid)
    after = rows_of(state)
    assert before != after
    for viewer in (NINA, NINA_WITH_NODES):
        assert [seen_by(row, viewer) for row in before.values()] == [seen_by(row, viewer) for row in after.values()]


def test_rows_are_json_that_reads_back():
    row = rows_of(state_of())["mig-1"]
    assert msgspec.json.decode(encode(row), type=type(row)) == row
    assert {pod.name: held for pod, held in holders_of(row)}["slices"] == "0.429 GPUs (nvidia.com/mig-1g.10gb 3)"


def test_the_most_fragmented_nodes_come_first_and_full_ones_last():
    rows = rows_of(state_of())
    order = [row.node for row in by_fragmentation(list(rows.values()))]
    assert order.index("t4-1") < order.index("gpu-10"), "what is reserved for waiting pods is not free"
    open_again = state_of(sample_world.objects())
    order = [row.node for row in by_fragmentation(list(rows_of(open_again).values()))]
    assert order.index("gpu-10") < order.index("t4-1") < order.index("gpu-2")


def test_partitions_of_a_taken_gpu_are_free_for_no_pod():
    place = claims.partitioned()
    place.set_pod(claims.resident("a", claims.SHARING, node="n0"))
    [row] = [RowReader(place).row(node) for node in place.fleet.nodes()]
    whole, parts = row.groups
    assert [(device.pieces, device.shut) for group in (whole, parts) for device in group.devices] == [(1, 0), (2, 2)]
    assert row.free == 0
    seen = seen_by(row, Viewer("nina", frozenset({"nlp"}), nodes=True))
    assert {device.shut for group in seen.groups for device in group.devices} == {0}, "it would tell what others have"


def test_free_is_in_gpus_whatever_the_pieces_are():
    rows = rows_of(state_of())
    assert rows["t4-1"].free == 2.5, "10 of 16 quarters"
    assert rows["t4-1"].stranded == 2.5
    assert rows["mig-1"].free == round(4 / 7 + 3 / 7, 6)
    assert [group.piece for group in rows["mig-1"].groups] == [0.142857, 0.428571]
    held = {pod.name: taken for pod, taken in holders_of(rows["gpu-2"])}
    assert held == {"eval": "4 GPUs", "train-2": "4 GPUs"}
