"""Rows: which kinds say what pods there will be, and which of them the webhook judges."""

from webhook.core.model.policy import WorkloadKind
from webhook.kube.kinds.kind_row import Row, counted, fatal
from webhook.kube.kinds.table import BUILT_IN


def test_a_kind_without_paths_and_reader_makes_no_pods():
    assert not Row(WorkloadKind("example.com", "Group", "groups"), ("v1",)).makes_pods


def test_what_users_do_not_create_as_a_workload_is_not_judged():
    want = {"Pod", "Model", "PodGroup", "Configuration", "Revision", "RoleSet", "RayClusterReplicaSet"}
    assert {row.kind.kind for row in BUILT_IN if not row.is_judged} == want


def test_losses_are_those_of_reclaim():
    assert (counted({}).name, fatal({}).name) == ("COUNTED", "FATAL")
