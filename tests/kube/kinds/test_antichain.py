"""The tasks that may run at once: compared with every antichain."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.kinds.model import Budget
from webhook.kube.kinds.table import kind_table
from webhook.kube.kinds.workflow_pods import Task, before, heaviest
from webhook.kube.workloads.expand import expand

KINDS = kind_table()


def pod(gpus):
    return {"container": {"image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus}}}}


def workflow(*templates, **spec):
    found = {"entrypoint": "main", "templates": list(templates), **spec}
    metadata = {"name": "it", "namespace": "vision"}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": found}


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
    order = before([Task.of({"name": f"t{task}", "dependencies": each}) for task, each in enumerate(waits)], Budget())
    apart = [
        chosen
        for size in range(len(weights) + 1)
        for chosen in combinations(range(len(weights)), size)
        if not any(order[late] >> early & 1 for late in chosen for early in chosen)
    ]
    found = heaviest(weights, order, Budget())
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
