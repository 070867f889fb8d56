"""The same pods count the same everywhere: at admission, on the ledger, in status and metrics, in a review."""

import tempfile
from fractions import Fraction
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import decision_of
from tests.cases.test_cases import ask, open_reviewer, pod
from tests.examples import examples
from webhook.core.explain.team_rows import board_of, team_rows
from webhook.core.model.amounts import ONE_GPU, parse_amount
from webhook.core.model.decision import Admit, Deny
from webhook.core.model.pod import Requester
from webhook.core.model.reasons import Code
from webhook.core.placement.best_nodes import gpu_inventory
from webhook.kube.admission.templates import read_template
from webhook.kube.admission.trial_pods import Simulator

PRODUCT = "nvidia.com/gpu.product"
WEIGHTS = {"A100-MIG-1g.5gb": Fraction(1, 7), "A100-MIG-3g.20gb": Fraction(3, 7), "A100": Fraction(1)}
POLICY = {
    "teams": [{"name": "a", "namespaces": ["team-a"], "gpus": {"guaranteed": 2, "limit": "unlimited"}}],
    "resources": {"aliyun.com/gpu-mem": {"perGpu": 23}},
}
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.nvidia.com"},
    "spec": {
        "extendedResourceName": "nvidia.com/gpu",
        "selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}],
    },
}
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
OF_MEMORY, OF_DRA = "memory", "dra"

_nodes = st.lists(st.tuples(st.sampled_from([*WEIGHTS, OF_MEMORY, OF_DRA]), st.integers(1, 8)), min_size=1, max_size=4)
_pods = st.lists(
    st.tuples(st.sampled_from(["nvidia.com/gpu", "nvidia.com/gpu", "aliyun.com/gpu-mem", IMPLICIT]), st.integers(1, 3)),
    min_size=1,
    max_size=6,
)


def written(nodes):
    """Nodes and objects of a case."""
    found, objects = {}, [CLASS]
    for number, (kind, size) in enumerate(nodes):
        name, given_ = f"n{number}", {"allocatable": {"nvidia.com/gpu": str(size)}, "labels": {PRODUCT: kind}}
        if kind == OF_MEMORY:
            memory = {"aliyun.com/gpu-mem": str(23 * size), "aliyun.com/gpu-count": str(size)}
            given_ = {"allocatable": {"nvidia.com/gpu": "0", **memory}}
        if kind == OF_DRA:
            given_ = {"allocatable": {"nvidia.com/gpu": "0"}}
            devices = [{"name": f"gpu-{i}"} for i in range(size)]
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": pool, "devices": devices}
            slice_ = {"kind": "ResourceSlice", "metadata": {"name": f"of-{name}"}, "spec": spec}
            objects.append({"apiVersion": "resource.k8s.io/v1", **slice_})
        found[name] = given_
    return found, objects


def predicted(reviewer, manifest):
    """What a review says that the pod counts, in a world of its own; None where no node can ever hold it."""
    template = read_template(manifest, namespace="team-a", world=reviewer.world)
    (answer,) = Simulator(reviewer.world, now_text="").simulate(template, 1, requester=Requester("alice"))
    if isinstance(answer.decision, Deny):
        assert [reason.code for reason in answer.decision.reasons] == [Code.NEVER_FITS]
        return None
    assert isinstance(answer.decision, Admit)
    return answer.decision.charge.gpus


@given(_nodes, _pods)
@examples(25)
def test_a_pods_gpus_are_the_same_in_decisions_ledger_status_and_metrics(nodes, pods):
    found, objects = written(nodes)
    kinds = {f"n{number}": kind for number, (kind, _) in enumerate(nodes)}
    counted = Fraction(0)
    with tempfile.TemporaryDirectory() as folder:
        case = {"policy": POLICY, "nodes": found, "objects": objects}
        reviewer = open_reviewer(case, Path(folder))
        for number, (resource, pieces) in enumerate(pods):
            step = asked(number, resource, pieces)
            before = predicted(after(case, pods[:number], Path(folder)), pod(step))
            record, _, manifest = ask(reviewer, step, f"u{number}")
            if before is None:
                assert (record.outcome, record.code) == ("deny", Code.NEVER_FITS), record.message
                continue
            assert record.outcome == "admit", record.message
            decided = decision_of(manifest)
            charge = parse_amount(decided["gpus"])
            assert before == charge
            counted += charge
            for node in decided["nodes"]:
                assert charge == pieces * weight_of(resource, kinds[node])
        check(reviewer.world, counted)


def asked(number, resource, pieces):
    return {"metadata": {"name": f"p{number}"}, "resources": {"limits": {resource: str(pieces)}}}


def after(case, pods, folder):
    """The same world again, with the pods that came before."""
    reviewer = open_reviewer(case, folder)
    for number, (resource, pieces) in enumerate(pods):
        record = ask(reviewer, asked(number, resource, pieces), f"u{number}")[0]
        assert record.outcome == "admit" or record.code == Code.NEVER_FITS
    return reviewer


def weight_of(resource, kind):
    return ONE_GPU * (Fraction(1, 23) if resource == "aliyun.com/gpu-mem" else WEIGHTS.get(kind, Fraction(1)))


def check(world, counted):
    """Compare the numbers of teams, nodes and metrics."""
    (team,) = team_rows(world)
    board = board_of(world)
    assert team.used == counted == board.teams[0].used
    rows = {(row.model, row.resource): row for row in board.free}
    for stock in gpu_inventory(world.fleet, world.policy):
        row, weight = rows[stock.model, stock.resource], weight_of(stock.resource, stock.model)
        assert stock.capacity == row.pieces * weight
        assert stock.resource != IMPLICIT, "a class's devices are there once"
        if stock.resource == "nvidia.com/gpu":
            assert stock.free == int(row.free * weight)
    groups = [group for row in board.nodes for group in row.groups]
    assert IMPLICIT not in {group.resource for group in groups}
    assert not any(group.over for group in groups), "no pod is placed where nothing is free"
