"""A claim grows after its pod was admitted, on an API server that has beta versions of claims only, as before 1.34."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

import pytest

from tests.attacks.attacker import Attacker, make_attacker
from tests.control_plane.api import ApiError
from tests.control_plane.commands import API_SERVER
from tests.control_plane.minors import needs
from tests.control_plane.objects import pod
from tests.control_plane.workbench import get_pod, wait_for
from tests.scenarios.standing_fairgate import serve_fairgate

pytestmark = pytest.mark.cluster

GROUP = "/apis/resource.k8s.io"
DRIVER = "gpu.nvidia.com"
BETAS_ONLY = "--runtime-config=resource.k8s.io/v1=false,resource.k8s.io/v1beta2=true,resource.k8s.io/v1beta1=true"


def create_claim(attacker: Attacker, count: int) -> dict[str, Any]:
    """Create the claim `mine` as v1beta1, where a request has its fields itself."""
    requests = [{"name": "gpus", "deviceClassName": DRIVER, "count": count}]
    made = {"metadata": {"name": "mine"}, "spec": {"devices": {"requests": requests}}}
    path = f"{GROUP}/v1beta1/namespaces/{attacker.namespace}/resourceclaims"
    created: dict[str, Any] = attacker.api.create(path, made)
    return created


def allocate(attacker: Attacker, uid: str, *, count: int, version: str) -> str:
    """Allocate devices to the claim as kube-scheduler does; return the refusal, "" if there is none."""
    results = [{"request": "gpus", "driver": DRIVER, "pool": "p", "device": f"d{number}"} for number in range(count)]
    reserved = [{"resource": "pods", "name": "first", "uid": uid}]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    path = f"{GROUP}/{version}/namespaces/{attacker.namespace}/resourceclaims/mine/status"
    try:
        attacker.cluster.api.patch(path, {"status": status}, dryRun="All")
    except ApiError as error:
        if error.status == HTTPStatus.TOO_MANY_REQUESTS:  # the watch is not there yet: kube-scheduler tries again
            raise
        return error.message
    return ""


@needs("1.34", "older API servers have no v1 to disable: the attacks by claims of test_limits.py run on them")
def test_a_claim_that_grows_gets_no_devices_in_any_beta_version(start_control_plane):
    cluster = start_control_plane(extra_args={API_SERVER: [BETAS_ONLY]})
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    made = {"metadata": {"name": DRIVER}, "spec": {"selectors": selectors}}
    cluster.api.create(f"{GROUP}/v1beta1/deviceclasses", made)
    with serve_fairgate(cluster, is_own=True) as fairgate:
        mallory = make_attacker(cluster, fairgate.team_a)
        create_claim(mallory, 1)
        claiming = pod("first", resourceClaims=[{"name": "gpus", "resourceClaimName": "mine"}])
        wait_for(cluster, lambda: mallory.create_pod(claiming), what="Fairgate knows the claim")
        created = get_pod(cluster, fairgate.team_a, "first")
        uid = created["metadata"]["uid"]
        assert json.loads(created["metadata"]["annotations"]["fairgate.dev/decision"])["gpus"] == "1"

        def answers(count: int) -> list[str]:
            return [allocate(mallory, uid, count=count, version=version) for version in ("v1beta2", "v1beta1")]

        wait_for(cluster, lambda: answers(1) == ["", ""], what="what it was admitted with is allocated")
        mallory.api.delete(f"{GROUP}/v1beta1/namespaces/{mallory.namespace}/resourceclaims/mine")
        create_claim(mallory, 12)
        refused = wait_for(cluster, lambda: answers(12), what="the watch has the claim that grew")
        assert all("(ClaimChanged)" in answer for answer in refused), refused
