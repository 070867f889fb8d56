"""Definitions other than Fairgate expects: its own of another version, and of other products by a known name."""

import copy
import urllib.error
from contextlib import contextmanager

import pytest

from tests.control_plane.api import ApiError
from tests.control_plane.objects import GPU, pod
from tests.control_plane.workbench import create_pod, make_nodes, wait_bound, wait_for
from tests.scenarios.serving import ROOT
from tests.scenarios.standing_fairgate import serve_fairgate
from webhook.kube.ledger.reports import definition
from webhook.kube.ledger.team_ledger import team_ledger_crd

pytestmark = pytest.mark.cluster

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LEDGERS = f"{DEFINITIONS}/teamledgers.fairgate.dev"
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def replace_schema(cluster, schema):
    found = cluster.api.get(LEDGERS)
    [version] = found["spec"]["versions"]
    version["schema"] = {"openAPIV3Schema": schema}
    cluster.api.request("PUT", LEDGERS, found)


def why_unready(fairgate):
    """What a server says that is not ready."""
    try:
        return f"ready: {fairgate.get('/readyz')}"
    except urllib.error.HTTPError as error:
        return error.read().decode()


def test_a_definition_that_would_lose_charges_keeps_a_server_unready_until_it_is_replaced(cluster):
    make_nodes(cluster, 1)
    [whole] = [each["schema"]["openAPIV3Schema"] for each in team_ledger_crd()["spec"]["versions"]]
    older = copy.deepcopy(whole)
    del older["properties"]["ledger"]["properties"]["inFlight"]
    with serve_fairgate(cluster, is_own=True) as fairgate:
        fairgate.stop()
        replace_schema(cluster, older)
        try:
            [replica] = fairgate.replicas
            cluster.processes.start(replica.name, replica.command, cwd=ROOT)
            problem = "teamledgers.fairgate.dev is not this version's: it lacks the fields ledger.inFlight"
            wait_for(cluster, lambda: problem in why_unready(fairgate), what="the field is named")
            [version] = cluster.api.get(LEDGERS)["spec"]["versions"]
            kept = version["schema"]["openAPIV3Schema"]["properties"]["ledger"]["properties"]
            assert "inFlight" not in kept, "a server never changes what is there"
        finally:
            replace_schema(cluster, whole)
        wait_for(cluster, lambda: '"ready":true' in fairgate.get("/readyz"), what="ready with the definition")
        fairgate.wait_served()
        create_pod(cluster, fairgate.team_a, pod("p", gpus=1))
        wait_bound(cluster, fairgate.team_a, "p")


@contextmanager
def foreign(cluster, group, kind, plural):
    """A kind of another product by a name that Fairgate knows, whose objects have any fields."""
    made = definition(kind, plural, ANYTHING)
    made["metadata"] = {"name": f"{plural}.{group}"}
    made["spec"] |= {"group": group, "scope": "Namespaced"}
    made["spec"]["versions"][0]["name"] = "v1"
    cluster.api.create(DEFINITIONS, made)
    path = f"{DEFINITIONS}/{plural}.{group}"
    try:
        wait_for(cluster, lambda: _is_established(cluster.api.get(path)), what=f"{kind} is served")
        yield
    finally:
        cluster.api.delete(path)


def _is_established(found):
    return any(
        each["type"] == "Established" and each["status"] == "True" for each in found["status"].get("conditions") or ()
    )


SPECS = {
    "numbers where objects belong": {"steps": 7, "taskSpec": 1, "podTemplate": "none", "workspaces": {"a": 1}},
    "GPUs in a place of its own": {"machines": [{"accelerators": {GPU: 4}}], "count": "three"},
    "lists of lists": {"params": [[["x"]]], "taskRef": [], "taskSpec": {"steps": [[1], None, "x"]}},
    "none": None,
}


def test_kinds_of_others_by_a_known_name_are_created_and_their_pods_are_charged(cluster):
    make_nodes(cluster, 2, gpus=10)
    group, plural = "tekton.dev", "taskruns"
    with serve_fairgate(cluster) as fairgate, foreign(cluster, group, "TaskRun", plural):
        ours = fairgate.team_a
        path = f"/apis/{group}/v1/namespaces/{ours}/{plural}"
        for number, spec in enumerate(SPECS.values()):
            metadata = {"name": f"t{number}", "annotations": {"fairgate.dev/gang": "true"}}
            body = {"apiVersion": f"{group}/v1", "kind": "TaskRun", "metadata": metadata}
            made = cluster.api.create(path, body if spec is None else {**body, "spec": spec})
            assert made.get("spec") == spec, "nothing of it is changed"
            owner = {"apiVersion": body["apiVersion"], "kind": "TaskRun", "name": metadata["name"], "controller": True}
            owned = pod(f"p{number}", gpus=10)
            owned["metadata"]["ownerReferences"] = [{**owner, "uid": made["metadata"]["uid"]}]
            if number < 2:
                create_pod(cluster, ours, owned)
                wait_bound(cluster, ours, f"p{number}")
            else:
                with pytest.raises(ApiError, match="exceeded quota"):
                    create_pod(cluster, ours, owned)
        assert fairgate.charged("a") == 20
        assert fairgate.metric("fairgate_http_errors_total", status="500") == 0
