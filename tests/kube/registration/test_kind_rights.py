"""Rights by the rows of kinds: all that is read, nothing else, and docs/reference/rights.yaml grants the same."""

from pathlib import Path

import pytest
import yaml

from tests.addons.idle.made import rules
from tests.core.support.make import policy
from webhook.kube.kinds.table import BUILT_IN
from webhook.kube.registration.static_files import NOTEBOOKS, Component, kind_roles, kind_rules

RIGHTS = Path(__file__).parents[3] / "docs" / "reference" / "rights.yaml"


def granted(component):
    """Every verb that a component has on each resource."""
    return {
        (group, resource, verb)
        for rule in kind_rules(component)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_leader_may_read_every_object_that_says_the_size_of_a_gang():
    read = {(row.kind.group, row.kind.resource, "get") for row in BUILT_IN if row.gang.marker}
    assert ("kubeflow.org", "mxjobs", "get") in read
    assert read <= granted(Component.SERVER)


def test_the_evictor_changes_nothing_and_the_server_only_what_retries():
    assert {verb for *_, verb in granted(Component.EVICTOR)} == {"get", "list", "watch"}
    patched = {(group, resource) for group, resource, verb in granted(Component.SERVER) if verb == "patch"}
    assert patched == {(row.kind.group, row.kind.resource) for row in BUILT_IN if row.is_retried}


@pytest.mark.parametrize(
    ("actions", "want"), [(("report", "evict"), True), (("report", "demote"), False)], ids=["it evicts", "it does not"]
)
def test_notebooks_may_be_patched_only_where_policy_evicts_idle_pods(actions, want):
    (evictor,) = [each for each in kind_roles(policy(idle=rules(*actions))) if "evictor" in each["metadata"]["name"]]
    assert (NOTEBOOKS in evictor["rules"]) is want
    assert NOTEBOOKS not in kind_rules(Component.EVICTOR)


@pytest.mark.parametrize("component", Component)
def test_the_roles_to_apply_without_the_chart_grant_the_same(component):
    roles = [each for each in yaml.safe_load_all(RIGHTS.read_text()) if each["kind"] == "ClusterRole"]
    [role] = [role for role in roles if role["metadata"]["name"] == f"fairgate-{component}"]
    assert [rule for rule in kind_rules(component) if rule not in role["rules"]] == []
    elsewhere = {("", "pods"), ("scheduling.k8s.io", "podgroups")}
    kinds = {(row.kind.group, row.kind.resource) for row in BUILT_IN} - elsewhere
    others = [rule for rule in role["rules"] if rule not in kind_rules(component)]
    assert not kinds & {(group, each) for rule in others for group in rule["apiGroups"] for each in rule["resources"]}


def test_each_component_has_a_role_to_apply():
    assert [role["metadata"]["name"] for role in kind_roles()] == ["fairgate-server-kinds", "fairgate-evictor-kinds"]
    assert [role["rules"] for role in kind_roles()] == [kind_rules(each) for each in Component]
