"""One object of every kind, and everything that its row says of it, as data (kinds/MODULE.yaml).

`of` is the object, and stands for what is in the cluster, too; `with` what else is known. `pods` are role and count,
`gang` what the leader reads of it: `at` the path, `size` how many pods start together, `late` how many follow; or
`by`, the kind that says it instead. `deadline`, `evictions` (the message of a review), `survives` (evictions that the
evictor assumes; absent: any), `loss` of a pod (COUNTED) and `owner` (the path at which its own owner is looked up) are
as the sample has them, absent where there are none. `surge` is what a rolling update runs beside the old pods.
"""

import msgspec
import pytest

from tests.cases.samples import FOLDER, filled, read_yaml
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.core.reclaim.victims import Loss
from webhook.kube.kinds.kind_row import Related, running_deadline
from webhook.kube.kinds.model import Budget
from webhook.kube.kinds.table import BUILT_IN, BY_KIND, is_retried, kind_table, loss_of, path_of
from webhook.kube.objects.events import ObjectRef
from webhook.kube.workloads.expand import eviction_effect, expand
from webhook.kube.workloads.gang_size import gang_plan
from webhook.kube.workloads.gangs import paths_of

CASES = FOLDER / "kinds"
SAMPLES = {
    (each["of"]["apiVersion"].rpartition("/")[0], each["of"]["kind"]): filled(each)
    for path in sorted(CASES.glob("*.yaml"))
    for each in read_yaml(path)
}
ROWS = [pytest.param(row, id=f"{row.kind.kind}.{row.kind.group}") for row in BUILT_IN]


def said_of(row, document, related):
    """Everything that is known of an object, by its row."""
    found = {}
    expanded = expand(document, kinds=kind_table(), related=Related.of(related), namespace="vision")
    if expanded is not None:
        found["pods"] = {pods.role: pods.count for pods in expanded.pod_sets}
    found["gang"] = gang_of(row, document)
    found["deadline"] = running_deadline(document, row.deadline)
    effect = eviction_effect(document, row, Budget())
    found["evictions"] = effect.always or effect.without_rule
    if row.failures is not None:
        left = row.failures.budget(msgspec.convert(document, row.failures.item))
        found["survives"] = None if left is None else left.limit - left.failed
    loss = loss_of(document["apiVersion"], row.kind.kind, {"ray.io/node-type": "head"})
    found["loss"] = "" if loss is Loss.COUNTED else loss.name
    found["owner"] = path_of(ObjectRef(row.kind.kind, "vision", "it", "u", document["apiVersion"]))
    count = next(iter(found.get("pods", {}).values()), None)
    surge = row.surge(document, count) if row.surge is not None else None
    found["surge"] = {} if surge is None else surge._asdict()
    found["retried"] = is_retried(document["apiVersion"], row.kind.kind)
    return {key: value for key, value in found.items() if value or (value == 0 and value is not False)}


def gang_of(row, document):
    if row.gang.described_by:
        return {"by": row.gang.described_by}
    if not (row.gang.marker or row.gang.of_controller):
        return {}
    plan = gang_plan(document, kinds=kind_table(), namespace="vision", weights=BUILT_IN_RESOURCES)
    late = {"late": len(plan.late)} if plan.late else {}
    return {"at": list(paths_of(row, "vision", "it"))[-1], "size": plan.size, **late}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_says_of_its_sample(row):
    sample = SAMPLES[row.kind.group, row.kind.kind]
    document = {"metadata": {"name": "it", "namespace": "vision", "uid": "u"}, **sample["of"]}
    want = {key: value for key, value in sample.items() if key not in ("of", "with")}
    assert said_of(row, document, sample.get("with", [])) == want


def test_every_row_has_one_sample():
    assert SAMPLES.keys() == BY_KIND.keys()
    assert sum(len(read_yaml(path)) for path in CASES.glob("*.yaml")) == len(SAMPLES)


@pytest.mark.parametrize("row", ROWS)
def test_the_size_of_every_gang_can_be_read_somewhere(row):
    """A gang whose size no one can read starts pod by pod, and holds GPUs meanwhile."""
    read = {each.kind.kind for each in BUILT_IN if each.gang.marker or each.gang.of_controller}
    if row.gang.described_by:
        assert row.gang.described_by in read | {"each component"}
    elif row.kind.is_gang:
        assert row.kind.kind in read


def run_by(document, path, manager):
    """Return an object whose field at a path names its controller."""
    head, _, rest = path.partition(".")
    value = manager if not rest else run_by(document.get(head, {}), rest, manager)
    return {**document, head: value}


@pytest.mark.parametrize("row", [pytest.param(row, id=row.kind.kind) for row in BUILT_IN if row.manager is not None])
def test_no_pod_counts_of_what_another_cluster_runs(row):
    sample = SAMPLES[row.kind.group, row.kind.kind]
    related = Related.of(sample.get("with", []))
    expanded = {
        manager: expand(run_by(sample["of"], row.manager.path, manager), kinds=kind_table(), related=related)
        for manager in ("", *row.manager.own, "kueue.x-k8s.io/multikueue")
    }
    here = expanded[""]
    assert not here.is_elsewhere
    assert [expanded[own].pod_sets for own in row.manager.own] == [here.pod_sets] * len(row.manager.own)
    elsewhere = expanded["kueue.x-k8s.io/multikueue"]
    assert {pods.count for pods in elsewhere.pod_sets} == {0}
    assert elsewhere.warnings == (
        f"not judged: {row.manager.path} is kueue.x-k8s.io/multikueue, which runs it in another cluster",
    )
    assert (elsewhere.deadline, elsewhere.is_at_most, elsewhere.is_elsewhere) == ("", False, True)


def test_pods_of_an_object_that_says_another_cluster_runs_it_are_a_gang_of_its_size():
    document = {"metadata": {"name": "it", "namespace": "vision"}, **SAMPLES["jobset.x-k8s.io", "JobSet"]["of"]}
    plans = [
        gang_plan(each, kinds=kind_table(), namespace="vision", weights=BUILT_IN_RESOURCES)
        for each in (document, run_by(document, "spec.managedBy", "acme.example/fork"))
    ]
    assert plans[0] == plans[1]
    assert plans[0].size + len(plans[0].late) > 1
