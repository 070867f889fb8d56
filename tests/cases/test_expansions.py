"""Objects that make pods, and the pods they make, as data.

`of` is the manifest, `with` what else is known, `want` the pods: each is `role: count`, or a mapping of what matters:
count, gpus (by resource), maker (kind of the pods' controller), problem (part of it), labels, annotations and spec
(parts of the pod's). `{pod: 2}` in a manifest stands for a pod template with one container that asks for two GPUs.
"""

import copy

import msgspec
import pytest

from tests.cases.samples import samples
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.kube.kinds.kind_row import Related
from webhook.kube.kinds.model import Workload
from webhook.kube.kinds.table import kind_table
from webhook.kube.objects import objects
from webhook.kube.pod.demands import read_demand
from webhook.kube.workloads.expand import expand

CASES = [pytest.param(sample, id=sample.name) for sample in samples()]


def devices(template):
    spec = msgspec.json.decode(msgspec.json.encode(template), type=objects.Pod).spec
    reading = read_demand(spec, BUILT_IN_RESOURCES)
    assert reading.problems == ()
    return dict(reading.demand.devices)


def within(want, have):
    """Whether all of `want` is in `have`, however deep."""
    if isinstance(want, dict):
        return isinstance(have, dict) and all(key in have and within(want[key], have[key]) for key in want)
    return want == have


@pytest.mark.parametrize("sample", CASES)
def test_the_pods_of(sample):
    manifest, case = sample.of, sample.case
    before = copy.deepcopy(manifest)
    found = expand(manifest, kinds=kind_table(), related=Related.of(sample.related))
    assert isinstance(found, Workload), found
    assert manifest == before
    assert [pod_set.role for pod_set in found.pod_sets] == list(case["want"])
    assert found.is_gang is case.get("gang", found.is_gang)
    assert list(found.warnings) == case.get("warnings", [])
    for pod_set in found.pod_sets:
        check(pod_set, case["want"][pod_set.role])


def check(pod_set, want):
    want = want if isinstance(want, dict) else {"count": want}
    assert pod_set.count == want.get("count")
    assert want.get("problem", "") in (pod_set.problem or "")
    assert (pod_set.problem is None) is ("problem" not in want)
    if "gpus" in want:
        assert devices(pod_set.template) == want["gpus"]
    for key in ("labels", "annotations"):
        assert within(want.get(key, {}), pod_set.template.get("metadata", {}).get(key, {})), pod_set.template
    assert within(want.get("spec", {}), pod_set.template.get("spec", {})), pod_set.template
    if "maker" in want:
        [owner] = pod_set.template["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["controller"]) == (want["maker"], True)


def test_cases_are_found_for_every_kind():
    kinds = {sample.of["kind"] for sample in samples()}
    assert kinds == {kind for (_, kind), row in kind_table().items() if row.makes_pods}
