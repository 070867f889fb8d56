"""Manifests of other projects: the examples in the operators' own modules, and the pods that they create.

`workloads/<module>.yaml` names files of the module (in a Markdown file, its YAML blocks) and the objects in them that
make pods, each with its team and its pods by role: a count, or "count x resource amount" where a pod requests devices,
or the reason why they cannot be counted. `with` names files that the others need. The counts and devices were compared
with the manifests' own lines when they were written down; the manifests are not copied here.
"""

from pathlib import Path

import pytest
import yaml

from tests.control_plane.examples import examples
from tests.control_plane.versions import EXAMPLES
from webhook.core.model.pod import Requester
from webhook.core.model.policy import Policy, Team
from webhook.core.model.reasons import Code
from webhook.core.world.world import World
from webhook.kube.kinds.kind_row import Related
from webhook.kube.kinds.model import Budget, Workload
from webhook.kube.kinds.table import kind_table
from webhook.kube.workloads.expand import expand, judge, to_part

pytestmark = pytest.mark.cluster

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # every worker reads all of them to list the tests
FACTS = {
    path.stem: yaml.load(path.read_text(), Loader=LOADER)
    for path in (Path(__file__).parent / "workloads").glob("*.yaml")
}
POLICY = Policy(teams=(Team("platform", namespaces=("kubeflow",)), Team("research", namespaces=("default",))))
MODULES = {recipe.name: recipe for recipe in EXAMPLES}


def facts_of(pod_set, world):
    """A pod set as the facts have it."""
    if pod_set.problem is not None:
        return pod_set.problem
    part = to_part(pod_set, namespace="default", weights=world.policy.resources, budget=Budget())
    asked = ", ".join(f"{name} {amount}" for name, amount in part.pod.demand.devices)
    return f"{pod_set.count} x {asked}" if asked else pod_set.count


@pytest.mark.parametrize(
    ("module", "path"), [(module, path) for module in sorted(FACTS) for path in sorted(FACTS[module]["manifests"])]
)
def test_the_pods_of(module, path):
    world = World(POLICY)
    objects = examples(MODULES[module], path)
    needed = [found for more in FACTS[module].get("with", []) for found in examples(MODULES[module], more)]
    related = Related.of([*objects, *needed])
    got = {}
    for found in (expand(each, kinds=kind_table(), related=related) for each in objects):
        if found is None:
            continue
        assert isinstance(found, Workload), found
        pods = {pod_set.role: facts_of(pod_set, world) for pod_set in found.pod_sets}
        got[f"{found.kind}/{found.name}"] = {"team": str(world.tenancy(found.namespace).team_name), "pods": pods}
        assert {reason.code for reason in judge(found, Requester("ada"), world, Budget())} <= {Code.EVICTIONS_COUNT}
    assert got == FACTS[module]["manifests"][path]


def test_every_module_is_checked():
    assert FACTS.keys() == MODULES.keys()
