"""`fairgate policy check` on a cluster with GPU pods of namespaces of no team, such as those of device operators."""

import pytest
from click.testing import CliRunner

from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, make_namespace, make_nodes
from tests.scenarios.serving import policy_of
from webhook.cli.main import main

pytestmark = pytest.mark.cluster


def test_pods_that_have_ended_say_what_would_be_refused(cluster, tmp_path):
    """A validator's next pod comes with the next node: a policy that is about to be installed would refuse it."""
    cluster.vacate()
    make_nodes(cluster, 1)
    stray, operator = make_namespace(cluster), make_namespace(cluster, "gpu-operator")
    try:
        for namespace, phase in ((stray, "Succeeded"), (stray, "Failed"), (operator, "Succeeded")):
            name = phase.lower()
            create_pod(cluster, namespace, pod(name, gpus=1, nodeName="none"))
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
            cluster.api.patch(path, {"status": {"phase": phase}})
        policy = tmp_path / "policy.yaml"
        policy.write_text(policy_of([{"name": "a", "namespaces": ["a"], "gpus": {"limit": 4}}]))
        command = ["policy", "check", str(policy), "--kubeconfig", str(cluster.kubeconfig)]
        said = CliRunner().invoke(main, command, catch_exceptions=False).output
        assert f"namespace {stray} has 2 pods with GPUs (all of them ended) but no team: new pods are refused" in said
        assert f"  exempt {operator}: 1 pod with GPUs (all of them ended); by default (exempt.operators)" in said
    finally:
        cluster.kubectl("delete", "namespace", operator, "--wait=false")
