"""The dependencies of the tasks of a graph."""

from webhook.kube.kinds.argo_tasks import Task, before
from webhook.kube.kinds.budget import Budget


def test_cyclic_dependencies_terminate():
    tasks = [Task.of({"name": "a", "depends": "b"}), Task.of({"name": "b", "depends": "a"}), Task.of({"name": "c"})]
    assert before(tasks, Budget())[2] == 0
