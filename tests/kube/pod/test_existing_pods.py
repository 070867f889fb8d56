"""Existing pods: which ones count, and how."""

from datetime import UTC, datetime

import pytest

from tests import builders as b
from tests.kube.support.created import resident, with_resources
from webhook.core.model.amounts import ONE_GPU
from webhook.core.model.constraints import Tier, unpack
from webhook.core.model.pod import Owner
from webhook.kube.objects import bounds, keys


def test_a_running_pod_has_node_team_and_owner():
    manifest = b.pod(
        uid="u-1",
        node="node-1",
        phase="Running",
        labels={"fairgate.dev/team": "vision", "fairgate.dev/tier": "preemptible"},
        annotations={"fairgate.dev/decision": '{"user":"alice","at":"now"}'},
        controller=("Job", "train"),
    )
    found = resident(manifest)
    assert (found.uid, found.namespace, found.name, found.node) == ("u-1", "vision", "train-0", "node-1")
    assert (found.team_label, found.tier_label, found.user) == ("vision", "preemptible", "alice")
    assert found.owner == Owner("Job", "train")
    assert found.demand.gpus == ONE_GPU
    assert not found.is_terminating


@pytest.mark.parametrize(
    ("manifest", "counts"),
    [
        (b.pod(phase="Succeeded", node="node-1"), False),
        (b.pod(phase="Failed", node="node-1"), False),
        (b.pod(phase="Pending"), True),
        (b.pod(gpus=None, phase="Pending"), False),
        (b.pod(gpus=None, phase="Running", node="node-1"), True),
    ],
    ids=["succeeded", "failed", "waiting for GPUs", "waiting without GPUs", "running without GPUs"],
)
def test_which_pods_count(manifest, counts):
    assert (resident(manifest) is not None) is counts


def test_a_terminating_pod_counts_until_it_is_gone():
    manifest = b.pod(node="node-1", phase="Running")
    manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert resident(manifest).is_terminating


def test_a_hand_written_pod_needs_neither_uid_nor_namespace():
    manifest = b.pod()
    del manifest["metadata"]["namespace"]
    assert (resident(manifest).uid, resident(manifest).namespace) == ("default/train-0", "default")


def test_amounts_that_admission_would_refuse_count_as_they_are():
    assert resident(with_resources({b.GPU: "1.5"}, {b.GPU: "2"})).demand.devices == ((b.GPU, 2),)


def test_malformed_amounts_are_an_error():
    with pytest.raises(ValueError, match="container train: cpu: 'x' is not a quantity"):
        resident(with_resources({"cpu": "x"}))


@pytest.mark.parametrize("mark", ["{}", '{"user":7}', '"user"', "not json", '{"user":null}'])
def test_a_malformed_decision_has_no_user(mark):
    assert resident(b.pod(annotations={"fairgate.dev/decision": mark})).user is None


def test_age_and_requested_tier_are_read():
    manifest = b.pod(
        labels={"fairgate.dev/tier": "preemptible"}, annotations={"fairgate.dev/decision": '{"asked":"guaranteed"}'}
    )
    manifest["metadata"]["creationTimestamp"] = "2026-01-01T00:01:00Z"
    found = resident(manifest)
    assert found.created == datetime(2026, 1, 1, 0, 1, tzinfo=UTC).timestamp()
    assert found.requested_tier is Tier.GUARANTEED
    assert found.tier is None  # without the team label the tier label was not written by Fairgate
    manifest["metadata"]["labels"]["fairgate.dev/team"] = "vision"
    assert resident(manifest).tier is Tier.PREEMPTIBLE


@pytest.mark.parametrize("time", [None, "", "yesterday", "9999-99-99T00:00:00Z"])
def test_a_pod_with_a_malformed_creation_time_is_the_oldest(time):
    manifest = b.pod()
    manifest["metadata"]["creationTimestamp"] = time
    assert resident(manifest).created == 0


@pytest.mark.parametrize(
    ("mark", "labels", "node", "want"),
    [
        ('{"nodes":["n1","n2"]}', {"fairgate.dev/team": "vision"}, None, "n1"),
        ('{"nodes":["n1","n2"]}', {"fairgate.dev/team": "vision"}, "n7", None),
        ('{"nodes":["n1","n2"]}', {}, None, None),
        ('{"nodes":[]}', {"fairgate.dev/team": "vision"}, None, None),
        ('{"nodes":"n1"}', {"fairgate.dev/team": "vision"}, None, None),
    ],
    ids=["waiting", "bound", "without the team label", "no nodes chosen", "malformed"],
)
def test_a_pending_pod_reserves_the_first_node_of_its_decision(mark, labels, node, want):
    found = resident(b.pod(annotations={"fairgate.dev/decision": mark}, labels=labels, node=node))
    assert found.promised == want


def test_a_pending_pod_reserves_the_first_node_of_its_affinity_where_the_decision_does_not_repeat_them():
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in ("n3", "n1")]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    more = {"labels": {"fairgate.dev/team": "vision"}, "affinity": {"nodeAffinity": required}}
    short = {"fairgate.dev/decision": '{"nodes":[],"listed":2}'}
    assert resident(b.pod(annotations=short, **more)).promised == "n3"
    assert resident(b.pod(annotations=short, node="n1", **more)).promised is None
    waits = {"fairgate.dev/decision": '{"nodes":[]}'}
    assert resident(b.pod(annotations=waits, **more)).promised is None, "the user named them"


def test_the_version_is_read_and_makes_no_difference():
    manifest = b.pod()
    first = resident(manifest)
    manifest["metadata"]["resourceVersion"] = "77"
    assert resident(manifest).version == 77
    assert resident(manifest) == first


def test_a_pod_with_too_many_labels_keeps_only_team_and_tier():
    labels = {keys.TEAM: "a", keys.TIER: "guaranteed"} | {f"k{i}": "" for i in range(bounds.LABELS)}
    found = resident(b.pod(node="n0", labels=labels))
    assert unpack(found.packed) == {keys.TEAM: "a", keys.TIER: "guaranteed"}
    assert found.tier is not None


def test_an_existing_pod_with_too_many_containers_counts_its_gpus():
    others = [b.container(f"c{i}", gpus=None) for i in range(bounds.CONTAINERS)]
    assert resident(b.pod(node="n0", containers=[*others, b.container(gpus=3)])).demand.gpus == 3 * b.ONE_GPU
