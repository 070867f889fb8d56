"""All kinds, by their rows: each row is beside the functions that read objects of its kind."""

from typing import Final

from webhook.core.model.workload_rules import WorkloadKind
from webhook.kube.kinds import (
    apps,
    argo,
    batch,
    dynamo,
    inference,
    kubeflow,
    kubevirt,
    path_kinds,
    pod_groups,
    ray,
    seldon,
    serving,
    spark,
    tekton,
    trainjob,
)
from webhook.kube.kinds.kind_row import KindTable, Row

BUILT_IN: Final[tuple[Row, ...]] = (
    *apps.ROWS,
    *batch.ROWS,
    *kubeflow.ROWS,
    *trainjob.ROWS,
    *ray.ROWS,
    *argo.ROWS,
    *spark.ROWS,
    *serving.ROWS,
    *seldon.ROWS,
    *inference.ROWS,
    *path_kinds.ROWS,
    *dynamo.ROWS,
    *tekton.ROWS,
    *kubevirt.ROWS,
    *pod_groups.ROWS,
)

BY_KIND: Final[KindTable] = {(row.kind.group, row.kind.kind): row for row in BUILT_IN}


def kind_table(added: tuple[WorkloadKind, ...] = ()) -> KindTable:
    """Return a table of the built-in kinds and those of the policy, which take precedence."""
    return {**BY_KIND, **{(kind.group, kind.kind): _of_policy(kind) for kind in added}}


def _of_policy(kind: WorkloadKind) -> Row:
    known = BY_KIND.get((kind.group, kind.kind))
    return Row(kind, ("*",), "as policy says", is_judged=known is None or known.is_judged)
