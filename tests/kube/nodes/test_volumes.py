"""PersistentVolumes: of bound ones, on which nodes their claims are usable."""

import json

import msgspec
import pytest

from webhook.core.model.constraints import NodeTerm, Operator, Requirement
from webhook.kube.nodes.nodes import BoundVolume, PersistentVolume, to_volume

ZONE = "topology.kubernetes.io/zone"
CLAIM = {"namespace": "vision", "name": "home", "uid": "u1"}


def affinity(*zones):
    expression = {"key": ZONE, "operator": "In", "values": zones}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}] if zones else []}}


def volume(phase="Bound", **spec):
    body = {"metadata": {"name": "pv-1"}, "spec": spec, "status": {"phase": phase}}
    return to_volume(msgspec.json.decode(json.dumps(body), type=PersistentVolume))


def test_a_bound_volume_is_usable_where_its_affinity_says():
    terms = (NodeTerm((Requirement(ZONE, Operator.IN, ("a", "b")),)),)
    want = BoundVolume("vision/home", "pv-1", terms)
    assert volume(claimRef=CLAIM, nodeAffinity=affinity("a", "b")) == want


@pytest.mark.parametrize(
    ("phase", "spec"),
    [
        ("Released", {"claimRef": CLAIM, "nodeAffinity": affinity("a")}),
        ("Bound", {"claimRef": CLAIM}),
        ("Bound", {"claimRef": CLAIM, "nodeAffinity": affinity()}),
        ("Bound", {"nodeAffinity": affinity("a")}),
    ],
    ids=["of a claim that is gone", "usable everywhere", "without terms", "without a claim"],
)
def test_other_volumes_narrow_nothing(phase, spec):
    assert volume(phase, **spec) is None
