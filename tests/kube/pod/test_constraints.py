"""Node selector, affinity and tolerations as constraints."""

import msgspec
import pytest

from tests import builders as b
from tests.kube.support.created import pod_of, struct
from webhook.core.model.constraints import Constraints, Effect, NodeTerm, Operator, Requirement, Toleration
from webhook.kube.objects import bounds, objects
from webhook.kube.pod.constraints import read_placement, read_slices


def test_selector_affinity_and_tolerations_become_constraints():
    manifest = b.pod(
        nodeSelector={"disk": "ssd"},
        tolerations=[
            {"key": b.GPU, "operator": "Exists", "effect": "NoSchedule"},
            {"key": "a", "value": "b"},
            {"operator": "Exists"},
            {"key": "risk", "operator": "Lt", "value": "50"},
            {"key": "future", "operator": "Between", "value": "1"},
        ],
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
                            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-9"]}],
                        },
                        {},
                    ]
                }
            }
        },
    )
    assert pod_of(manifest).constraints == Constraints(
        node_selector=(("disk", "ssd"),),
        terms=(
            NodeTerm(
                (Requirement("zone", Operator.IN, ("a", "b")),),
                (Requirement("metadata.name", Operator.NOT_IN, ("node-9",)),),
            ),
            NodeTerm(),
        ),
        tolerations=(
            Toleration(b.GPU, exists=True, effect=Effect.NO_SCHEDULE),
            Toleration("a", value="b"),
            Toleration(exists=True),
            Toleration("risk", value="50", bound=Operator.LT),
        ),
    )


def test_null_fields_are_absent_fields():
    manifest = b.pod(affinity=None, nodeSelector=None, tolerations=None, resourceClaims=None, overhead=None)
    assert pod_of(manifest) == pod_of(b.pod())


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SPREAD = {"maxSkew": 1, "topologyKey": "zone"}
FROM_THE_FUTURE = {
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Resembles"}]},
}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, False),
        ({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}, False),
        ({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone", "namespaceSelector": {}}]}}}, True),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [], PREFERRED: [{"weight": 1}]}}}, False),
        ({"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "DoNotSchedule"}]}, False),
        ({"topologySpreadConstraints": [SPREAD | FROM_THE_FUTURE]}, True),
        ({"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "ScheduleAnyway"}]}, False),
        ({"containers": [b.container(ports=[{"containerPort": 80, "hostPort": 80}])]}, True),
        ({"containers": [b.container(ports=[{"containerPort": 80}])]}, False),
        ({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}, True),
        ({"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}, True),
        ({"volumes": [{"name": "ephemeral", "emptyDir": {}}]}, False),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}]}, True),
        ({"resourceClaims": []}, False),
    ],
    ids=[
        "none",
        "pod affinity",
        "pod affinity in namespaces by their labels",
        "preferred only",
        "hard spread",
        "hard spread with keys added later",
        "soft spread",
        "host port",
        "port",
        "claim of a volume",
        "ephemeral volume",
        "empty dir",
        "device claim",
        "no device claims",
    ],
)
def test_constraints_that_only_kube_scheduler_evaluates_are_flagged(spec, want):
    manifest = b.pod()
    manifest["spec"].update(spec)
    assert pod_of(manifest).has_open_constraints is want


def on_nodes(*names):
    fields = [[{"key": "metadata.name", "operator": "In", "values": [name]}] for name in names]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": each} for each in fields]}}}


def spec_of(affinity):
    return struct(b.pod(affinity=affinity)).spec


def test_the_nodes_of_a_decided_pod_are_parsed_once_for_validation_and_watch():
    first = read_placement(spec_of(on_nodes("node-1", "node-2")))
    assert first.constraints.named_nodes == ("node-1", "node-2")
    assert read_placement(spec_of(on_nodes("node-1", "node-2"))) is first
    assert read_placement(spec_of(on_nodes("node-2", "node-1"))).constraints.named_nodes == ("node-2", "node-1")


@pytest.mark.slow
@pytest.mark.parametrize(("count", "length"), [(100_000, 1), (1_000, 5_000)], ids=["small", "large"])
def test_a_tenant_who_sends_ever_new_affinities_fills_no_memory_and_changes_no_reading(count, length):
    neighbor = on_nodes("node-1", "node-2")
    want = read_placement(spec_of(neighbor))
    raw = bytes(spec_of(on_nodes("NAME")).affinity)
    for number in range(count):
        affinity = msgspec.Raw(raw.replace(b"NAME", b"%0*d" % (length, number)))
        read_placement(objects.PodSpec(containers=[], affinity=affinity))
    again = read_placement(spec_of(neighbor))
    assert again == want
    assert again is not want, "it was dropped: the flood is larger than the cache"
    assert read_placement(spec_of(neighbor)) is again, "parsed once more, and known again"


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ({"nvidia.com/gpu.replicas": "12"}, ("nvidia.com/gpu/12",)),
        ({"nvidia.com/gpu.replicas": "1"}, ()),
        ({"nvidia.com/gpu.product": "A100-MIG-1g.5gb", "nvidia.com/gpu.replicas": "2"}, ("nvidia.com/mig-1g.5gb",)),
        ({"nvidia.com/gpu.product": "A10G"}, ()),
    ],
    ids=["replicas", "whole GPUs", "replicas of MIG devices", "a product"],
)
def test_the_number_of_replicas_that_a_pod_names_is_the_slice_that_it_gets(selector, want):
    spec = struct(b.pod(nodeSelector=selector)).spec
    assert read_placement(spec).slices == read_slices(spec) == want


def test_only_some_of_a_pods_volumes_are_looked_up():
    claims = [{"name": f"v{number}", "persistentVolumeClaim": {"claimName": f"c{number}"}} for number in range(2000)]
    found = pod_of(b.pod(volumes=[*claims, {"name": "tmp", "emptyDir": {}}])).constraints
    assert len(found.volumes) == bounds.VOLUME_CLAIMS
    assert set(found.volumes) <= {f"vision/c{number}" for number in range(2000)}
