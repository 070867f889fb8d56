"""Pods of Argo Workflows: many tasks, workflows over a limit, and malformed ones."""

import pytest

from webhook.kube.kinds.kind_row import Related
from webhook.kube.kinds.model import Unknown
from webhook.kube.kinds.table import kind_table
from webhook.kube.workloads.expand import expand

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


def test_a_graph_of_many_tasks_counts_at_most_all_of_them():
    tasks = [{"name": f"t{i}", "template": "t", "dependencies": [f"t{i // 2 - 1}"]} for i in range(600)]
    found = expand(workflow({"name": "main", "dag": {"tasks": tasks}}, {"name": "t", **pod(1)}), kinds=KINDS)
    assert ([pods.count for pods in found.pod_sets], found.is_at_most) == ([600], True)


def test_a_workflow_of_one_pod_is_exact():
    found = expand(workflow({"name": "main", **pod(1)}), kinds=KINDS)
    assert ([pods.count for pods in found.pod_sets], found.is_at_most) == ([1], False)


@pytest.mark.parametrize(
    ("templates", "why"),
    [
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
    ids=["templates too deep", "a template name that is a parameter"],
)
def test_a_workflow_over_a_limit_is_reported_as_unknown(templates, why):
    assert why in problem(workflow(*templates, {"name": "t", **pod(1)}))


def test_a_long_name_of_a_workflow_template_is_not_repeated_for_each_call():
    name = "t" * 10_000
    library = {"kind": "WorkflowTemplate", "metadata": {"name": name, "namespace": "vision"}}
    calls = [{"name": f"s{number}", "template": "t"} for number in range(1000)]
    library["spec"] = {"templates": [{"name": "many", "steps": [calls]}, {"name": "t", **pod(1)}]}
    called = {"name": "main", "steps": [[{"name": "a", "templateRef": {"name": name, "template": "many"}}]]}
    found = expand(workflow(called), kinds=KINDS, related=Related.of([library]))
    assert isinstance(found, Unknown)
    assert found.is_too_large


@pytest.mark.parametrize(
    "spec",
    [{}, {"templates": 3}, {"templates": [None, {"name": []}]}, {"templates": [{"name": "main", "dag": {"tasks": 1}}]}],
)
def test_a_malformed_workflow_raises_nothing(spec):
    assert expand({**workflow(), "spec": {"entrypoint": "main", **spec}}, kinds=KINDS).name == "it"
