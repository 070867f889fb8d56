"""With `placement.mode: off` no patch names a node, as GKE Autopilot demands, whatever the pod and the nodes are."""

import json
from pathlib import Path

import msgspec
import pytest

from tests import builders as b
from tests.core.support.make import ALICE, pod
from tests.kube.support.patching import PODS, PREFERRED, REQUIRED, expression
from webhook.core.admission.admission import start
from webhook.core.admission.assessment import assess
from webhook.core.admission.node_choice import choice_of_node, in_domain
from webhook.core.model.amounts import Namespace, NodeName, TeamName, Uid
from webhook.core.model.constraints import DomainPlace, Operator, Requirement
from webhook.core.model.decision import Admit
from webhook.core.placement.rejecting_nodes import Rejection
from webhook.core.world.world import World
from webhook.kube.admission.pod_patch import operations, release_operations
from webhook.kube.pod.pods import to_pod
from webhook.kube.world_file.world_file import add_objects
from webhook.policy.watch import load

EXAMPLE = Path(__file__).parents[3] / "policies" / "examples" / "gke-autopilot.yaml"
ZONE, ACCELERATOR = "topology.kubernetes.io/zone", "cloud.google.com/gke-accelerator"
NODES = [
    b.node(f"gk3-{kind}-{number}", gpus=8, labels={ACCELERATOR: kind, ZONE: f"z{number % 2}"})
    for kind in ("nvidia-h100-80gb", "nvidia-l4")
    for number in range(4)
]
AFFINE = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
SHAPES = {
    "plain": {},
    "of one accelerator": {"nodeSelector": {ACCELERATOR: "nvidia-l4"}},
    "with required terms": {
        "affinity": {
            "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression(ZONE, "In", "z0")]}]}}
        }
    },
    "with preferred terms": {
        "affinity": {
            "nodeAffinity": {
                PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [expression(ZONE, "In", "z0")]}}]
            }
        }
    },
    "spread": {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        ]
    },
    "with a volume": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    "in one zone with others": {"affinity": {"podAffinity": {REQUIRED: [AFFINE | {"topologyKey": ZONE}]}}},
    "that waited in the queue": {"schedulingGates": [{"name": "fairgate.dev/queue"}]},
}


@pytest.fixture(params=["nodes", "no nodes yet", "a node that rejects pods"])
def place(request):
    policy = load(EXAMPLE)
    made = World(policy)
    nodes = [] if request.param == "no nodes yet" else NODES
    add_objects(made, nodes, name="w")
    if request.param == "a node that rejects pods":
        for number in range(9):
            rejection = Rejection(NodeName("gk3-nvidia-l4-0"), Namespace("vision"), Uid(f"u{number}"), number, "x")
            made.rejecting_nodes.note(rejection)
        made.rejecting_nodes.tick(9)
        assert made.rejecting_nodes.avoided(TeamName("vision"), pod(1), made.fleet).closed
    return made


@pytest.mark.parametrize("namespace", ["vision", "nlp"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_no_patch_names_a_node(place, shape, namespace):
    manifest = PODS.decode(json.dumps(b.pod(namespace=namespace, uid="u", gpus=2, **shape)))
    pod = to_pod(manifest, namespace=Namespace(namespace), weights=place.policy.resources)
    admit = start(assess(pod, ALICE, place), place)
    assert isinstance(admit, Admit)
    choices = [
        admit.node_choice,
        choice_of_node(pod, NodeName(NODES[0]["metadata"]["name"]), place.policy.pools, place),
    ]
    zone = DomainPlace("z0", (Requirement(ZONE, Operator.IN, ("z0",)),), is_required=True)
    for choice in [*choices, *(in_domain(each, zone) for each in choices)]:
        for write in (operations, release_operations):
            text = msgspec.json.encode(write(manifest, admit._replace(node_choice=choice), now_text="t")).decode()
            assert "matchFields" not in text
            assert "kubernetes.io/hostname" not in text


def test_pools_are_written_all_the_same():
    policy = load(EXAMPLE)
    made = World(policy)
    add_objects(made, NODES, name="w")
    manifest = PODS.decode(
        json.dumps(b.pod(namespace="vision", uid="u", gpus=2, annotations={"fairgate.dev/pool": "l4"}))
    )
    pod = to_pod(manifest, namespace=Namespace("vision"), weights=policy.resources)
    text = msgspec.json.encode(operations(manifest, start(assess(pod, ALICE, made), made), now_text="t")).decode()
    assert f'"{ACCELERATOR}":"nvidia-l4"' in text
