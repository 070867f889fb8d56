"""The measures of the chaos tests: how many GPUs a pod holds, and how long a guaranteed pod waits for a borrower."""

from __future__ import annotations

import pytest

from tests.chaos.observer import Observer, gpus_of
from tests.chaos.patience import GuaranteedWaits
from tests.control_plane.objects import pod
from tests.scenarios.serving import TIER

UNSCHEDULABLE = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}


def container(gpus: int, **more: object) -> dict[str, object]:
    return {"name": f"c{gpus}", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}, **more}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"containers": [container(1), container(2)]}, 3),
        ({"containers": [container(1)], "initContainers": [container(8)]}, 8),
        ({"containers": [container(1)], "initContainers": [container(2, restartPolicy="Always")]}, 3),
        ({"containers": [container(1)], "initContainers": [container(2, restartPolicy="Always"), container(4)]}, 6),
        ({"containers": [{"name": "none", "resources": {}}]}, 0),
    ],
    ids=["containers add up", "an init container runs alone", "a sidecar stays", "beside a sidecar", "no GPU"],
)
def test_a_pod_holds_what_a_device_plugin_allocates(spec, want):
    assert gpus_of({"spec": spec}) == want


def made(name: str, *, tier: str, node: str = "", status: dict | None = None) -> dict:
    found = pod(name, namespace="n", gpus=1, labels={TIER: tier}, **({"nodeName": node} if node else {}))
    found["metadata"]["uid"] = name
    return found | {"status": status or {}}


def test_a_guaranteed_pod_waits_only_while_a_borrower_could_go():
    seconds = 0
    waits = GuaranteedWaits(frozenset({"n"}), clock=lambda: seconds)
    waits.take("ADDED", made("waiting", tier="guaranteed", status=UNSCHEDULABLE))
    seconds = 7
    waits.take("ADDED", made("full", tier="guaranteed", node="a"))
    assert waits.longest() == 0
    waits.take("ADDED", made("borrower", tier="preemptible", node="a"))
    seconds = 12
    assert waits.state() == "waiting: ['n/waiting for 5.0 s']; borrowers: ['n/borrower on a']"
    assert waits.longest() == 5
    waits.take("MODIFIED", made("waiting", tier="guaranteed", node="a"))
    seconds = 20
    assert (waits.done, waits.longest()) == ([5], 5)


def observed(observer: Observer, kind: str, pod: dict) -> None:
    observer._take(kind, pod, look=True)
    observer._remember("/api/v1/pods", kind, pod)


@pytest.mark.parametrize(
    ("ignores", "want"), [("true", ["n holds 2 of 1 after ADDED of n/next, 1 by force deleted"]), ("false", [])]
)
def test_a_force_deleted_pod_holds_its_gpus_until_its_grace_period_ends(ignores, want):
    observer = Observer(None, {"n": 1, "n on a": 1})
    first = made("first", tier="guaranteed", node="a", status={"phase": "Running"})
    first["metadata"]["annotations"] = {"fairgate.test/ignores-sigterm": ignores}
    first["spec"]["terminationGracePeriodSeconds"] = 600
    for kind in ("ADDED", "DELETED"):
        observed(observer, kind, first)
    observed(observer, "ADDED", made("next", tier="guaranteed"))
    assert observer.breaches == want


def test_a_claim_counts_once_while_it_has_a_pod():
    observer = Observer(None, {"n": 1})
    claim = {"metadata": {"namespace": "n", "name": "c", "uid": "c"}}
    results = [{"device": "gpu-0"}, {"device": "gpu-1"}]
    pods = [made(name, tier="guaranteed") for name in ("first", "second")]
    for each in pods:
        each["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": "c"}]
        each["spec"]["containers"][0]["resources"] = {}
        observed(observer, "ADDED", each)
    observer._take_claim("ADDED", claim | {"status": {"allocation": {"devices": {"results": results}}}}, look=True)
    assert observer.held() == {"n": 2}
    assert len(observer.breaches) == 1
    for each in pods:
        observed(observer, "DELETED", each)
    assert observer.held() == {"n": 0}
