"""The dependencies of the tasks of a graph."""

from webhook.kube.kinds.model import Budget
from webhook.kube.kinds.workflow_pods import Task, before


def test_cyclic_dependencies_terminate():
    tasks = [Task.of({"name": "a", "depends": "b"}), Task.of({"name": "b", "depends": "a"}), Task.of({"name": "c"})]
    assert before(tasks, Budget())[2] == 0
