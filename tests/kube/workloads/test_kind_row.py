"""Rows of the table: which kinds create pods of their own."""

from webhook.kube.workloads.table import BUILT_IN


def test_a_pod_and_what_existing_pods_load_are_no_workloads():
    assert {row.kind.kind for row in BUILT_IN if not row.is_workload} == {"Pod", "Model"}
