"""Argo Workflows: the peak compared with every antichain, and workflows over a limit."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.workloads.antichain import heaviest
from webhook.kube.workloads.argo_tasks import Task, before
from webhook.kube.workloads.expand import expand
from webhook.kube.workloads.table import kind_table

KINDS = kind_table()


def pod(gpus):
    return {"container": {"image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus}}}}


def workflow(*templates, **spec):
    found = {"entrypoint": "main", "templates": list(templates), **spec}
    metadata = {"name": "it", "namespace": "vision"}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": found}


def problem(document):
    (pods,) = expand(document, kinds=KINDS).pod_sets
    assert pods.count is None
    return pods.problem


@st.composite
def graphs(draw):
    """Weights of tasks and their dependencies: a task depends on earlier ones only."""
    weights = draw(st.lists(st.integers(0, 5), min_size=1, max_size=8))
    named = [draw(st.sets(st.integers(0, number - 1))) if number else set() for number in range(len(weights))]
    return weights, named


@given(graphs(), st.integers(1, 4))
def test_peak_of_a_dag_is_the_heaviest_antichain(graph, most):
    weights, named = graph
    waits = [[f"t{other}" for other in each] for each in named]
    order = before([Task.of({"name": f"t{task}", "dependencies": each}) for task, each in enumerate(waits)])
    apart = [
        chosen
        for size in range(len(weights) + 1)
        for chosen in combinations(range(len(weights)), size)
        if not any(order[late] >> early & 1 for late in chosen for early in chosen)
    ]
    found = heaviest(weights, order)
    assert tuple(sorted(found)) in apart
    assert sum(weights[task] for task in found) == max(sum(weights[task] for task in chosen) for chosen in apart)
    tasks = [
        {"name": f"t{task}", "inline": pod(weight), "dependencies": each}
        for task, (weight, each) in enumerate(zip(weights, waits, strict=True))
    ]
    read = expand(workflow({"name": "main", "dag": {"tasks": tasks}}, parallelism=most), kinds=KINDS)
    run = {int(pods.role.removeprefix("main/t")) for pods in read.pod_sets}
    assert len(run) <= most
    assert tuple(sorted(run)) in apart
    assert len(run) == most or sum(weights[task] for task in run) == sum(weights[task] for task in found)


def test_cyclic_dependencies_terminate():
    tasks = [Task.of({"name": "a", "depends": "b"}), Task.of({"name": "b", "depends": "a"}), Task.of({"name": "c"})]
    assert before(tasks)[2] == 0


def test_a_long_chain_of_tasks_is_read():
    tasks = [{"name": f"t{i}", "inline": pod(1), "dependencies": [f"t{i - 1}"]} for i in range(30)]
    found = expand(workflow({"name": "main", "dag": {"tasks": tasks}}), kinds=KINDS)
    assert [pods.count for pods in found.pod_sets] == [1]


@pytest.mark.parametrize(
    ("templates", "why"),
    [
        (
            [{"name": "main", "dag": {"tasks": [{"name": f"t{i}", "template": "t"} for i in range(65)]}}],
            "more than 64 of its tasks request devices",
        ),
        ([{"name": "main", "steps": [[{"name": "s", "template": "t"}]] * 5001}], "more than 5,000 steps"),
        (
            [
                {"name": name, "steps": [[{"name": "s", "template": f"{name}x"}]]}
                for name in ("main" + "x" * i for i in range(40))
            ],
            "more than 32 deep",
        ),
        (
            [{"name": "main", "steps": [[{"name": "s", "template": "{{inputs.parameters.what}}"}]]}],
            "was not provided",
        ),
    ],
    ids=["a graph too wide", "too many steps", "templates too deep", "a template name that is a parameter"],
)
def test_a_workflow_over_a_limit_is_reported_as_unknown(templates, why):
    assert why in problem(workflow(*templates, {"name": "t", **pod(1)}))


@pytest.mark.parametrize(
    "spec",
    [{}, {"templates": 3}, {"templates": [None, {"name": []}]}, {"templates": [{"name": "main", "dag": {"tasks": 1}}]}],
)
def test_a_malformed_workflow_raises_nothing(spec):
    assert expand({**workflow(), "spec": {"entrypoint": "main", **spec}}, kinds=KINDS).name == "it"
