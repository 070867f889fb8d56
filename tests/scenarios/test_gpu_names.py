"""The API server finds the same names to look like GPUs as Fairgate: RE2 in its match conditions, `re` here."""

import pytest

from tests.control_plane.api import ApiError
from tests.control_plane.workbench import wait_for
from tests.core.model.test_gpu_names import GPUS, OTHERS
from webhook.kube.registration.registration import gpu_name_expression, quoted

pytestmark = pytest.mark.cluster

API = "/apis/admissionregistration.k8s.io/v1"
NAME = "gpu-names"


def install(cluster, namespace):
    """Have the API server refuse a ConfigMap whose annotation names something that looks like a GPU."""
    key = quoted("name")
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
            ]
        },
        "matchConditions": [{"name": "here", "expression": f"object.metadata.namespace == {quoted(namespace)}"}],
        "validations": [{"expression": f"![object.data[{key}]].exists(k, {gpu_name_expression()})"}],
    }
    policy = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": NAME}}
    cluster.api.create(
        f"{API}/validatingadmissionpolicies", policy | {"kind": "ValidatingAdmissionPolicy", "spec": spec}
    )
    binding = {"policyName": NAME, "validationActions": ["Deny"]}
    cluster.api.create(
        f"{API}/validatingadmissionpolicybindings",
        policy | {"kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
    )


def is_refused(cluster, namespace, name):
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "n-"}, "data": {"name": name}}
    try:
        cluster.api.create(f"/api/v1/namespaces/{namespace}/configmaps", made, dryRun="All")
    except ApiError as error:
        if NAME not in error.message:
            raise
        return True
    return False


def test_the_api_server_finds_the_same_names(cluster, namespace):
    install(cluster, namespace)
    try:
        wait_for(cluster, lambda: is_refused(cluster, namespace, GPUS[0]), what="the policy is in force")
        assert [name for name in GPUS if not is_refused(cluster, namespace, name)] == []
        assert [name for name in OTHERS if is_refused(cluster, namespace, name)] == []
    finally:
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            cluster.api.delete(f"{API}/{kind}/{NAME}")
