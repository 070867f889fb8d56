"""The kinds that make pods: where each keeps its templates and counts."""

from typing import Final

from webhook.core.policy import PodPath, WorkloadKind
from webhook.kube.workloads.row import NOBODY, REPLICA_SET, KindTable, Row


def _at(template: str, *replicas: str) -> tuple[PodPath, ...]:
    return (PodPath(template, replicas, default=1),)


BUILT_IN: Final[tuple[Row, ...]] = (
    Row(WorkloadKind("", "Pod", "pods", _at("")), ("v1",), maker=NOBODY),
    Row(
        WorkloadKind("apps", "Deployment", "deployments", _at("spec.template", "spec.replicas")),
        ("v1",),
        maker=REPLICA_SET,
    ),
)


def kind_table(added: tuple[WorkloadKind, ...] = ()) -> KindTable:
    """Put the built-in kinds and those of policy into one table; policy wins."""
    rows = {(row.kind.group, row.kind.kind): row for row in BUILT_IN}
    return rows | {(kind.group, kind.kind): Row(kind, ("*",)) for kind in added}
