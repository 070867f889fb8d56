"""The table of kinds: complete, without doubles, and open for those of the policy."""

import pytest

from webhook.core.model.policy import PodPath, WorkloadKind
from webhook.kube.kinds.kind_row import OWN_CONTROLLER
from webhook.kube.kinds.table import BUILT_IN, kind_table

ROWS = [pytest.param(row, id=f"{row.kind.kind}.{row.kind.group}") for row in BUILT_IN]


def test_no_kind_is_listed_twice():
    assert len(kind_table()) == len(BUILT_IN)
    resources = [(row.kind.group, row.kind.resource) for row in BUILT_IN]
    assert len(set(resources)) == len(resources)


@pytest.mark.parametrize("row", ROWS)
def test_each_kind_has_paths_or_a_reader_and_what_the_documentation_needs(row):
    assert not (row.kind.pods and row.read)
    assert row.makes_pods is (row.kind.kind != "PodGroup")
    assert row.versions
    assert row.description
    assert row.kind.resource == row.kind.resource.lower()


@pytest.mark.parametrize("row", ROWS)
def test_labels_name_only_what_is_filled_in(row):
    made = [value.format(name="it", role="Worker", type="worker") for value in row.labels.values()]
    assert not any("{" in value for value in made)


def test_a_kind_of_the_policy_replaces_the_built_in_one():
    own = WorkloadKind("apps", "Deployment", "deployments", (PodPath("spec.template"),))
    row = kind_table((own,))["apps", "Deployment"]
    assert (row.kind, row.read, row.versions, row.controller) == (own, None, ("*",), OWN_CONTROLLER)
    assert len(kind_table((own,))) == len(BUILT_IN)


@pytest.mark.parametrize(
    ("group", "kind", "want"), [("", "Pod", False), ("mlops.seldon.io", "Model", False), ("example.com", "Model", True)]
)
def test_a_kind_of_the_policy_is_judged_unless_the_built_in_one_is_not(group, kind, want):
    own = WorkloadKind(group, kind, "models", (PodPath("spec.template"),))
    assert kind_table((own,))[group, kind].is_judged is want
