"""The registration: which requests are selected, and the failure policies."""

import base64

import pytest

from webhook.core.model.constraints import Operator, Requirement
from webhook.core.model.policy import Enforcement, LabelSelector, Policy, Pool, WorkloadKind, WorkloadRules
from webhook.kube.registration.registration import (
    ServiceReference,
    gpu_pod_expression,
    pool_pod_expression,
    webhook_configurations,
)

CA = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def configurations(policy=None, **where):
    return webhook_configurations(policy or Policy(), ca_bundle_pem=CA, **(where or {"url": "https://127.0.0.1:8443"}))


def webhooks(policy=None, **where):
    return {hook["name"]: hook for made in configurations(policy, **where) for hook in made["webhooks"]}


def test_there_is_one_configuration_of_each_kind_and_the_mutating_one_sorts_late():
    mutating, validating = configurations()
    assert (mutating["kind"], mutating["metadata"]["name"]) == ("MutatingWebhookConfiguration", "zz-fairgate")
    assert validating["kind"] == "ValidatingWebhookConfiguration"
    assert {made["apiVersion"] for made in (mutating, validating)} == {"admissionregistration.k8s.io/v1"}


@pytest.mark.parametrize(
    ("name", "operation", "path", "want"),
    [
        ("mutate.fairgate.dev", "CREATE", "/mutate", ("Ignore", 3, "None")),
        ("validate.fairgate.dev", "CREATE", "/validate", ("Fail", 5, "NoneOnDryRun")),
    ],
)
def test_operations_and_paths_of_each_webhook(name, operation, path, want):
    hook = webhooks()[name]
    [rule] = hook["rules"]
    assert (rule["operations"], rule["resources"], rule["apiGroups"]) == ([operation], ["pods"], [""])
    assert hook["clientConfig"]["url"] == f"https://127.0.0.1:8443{path}"
    assert (hook["failurePolicy"], hook["timeoutSeconds"], hook["sideEffects"]) == want
    assert (hook["matchPolicy"], hook["admissionReviewVersions"]) == ("Equivalent", ["v1"])


@pytest.mark.parametrize("mode", [Enforcement.SHADOW, Enforcement.WARN])
def test_all_webhooks_fail_open_while_the_policy_is_not_enforced(mode):
    found = webhooks(Policy(enforce=mode))
    assert {(hook["failurePolicy"], hook["timeoutSeconds"]) for hook in found.values()} == {("Ignore", 2)}
    assert len(found) == 6


def test_no_webhook_is_registered_while_the_policy_is_off():
    assert configurations(Policy(enforce=Enforcement.OFF)) == []


def test_only_mutating_webhooks_are_reinvoked():
    assert {name: hook.get("reinvocationPolicy") for name, hook in webhooks().items()} == {
        "mutate.fairgate.dev": "IfNeeded",
        "jobs.fairgate.dev": "IfNeeded",
        "gangs.fairgate.dev": "IfNeeded",
        "validate.fairgate.dev": None,
        "workloads.fairgate.dev": None,
        "claims.fairgate.dev": None,
    }


def test_the_claims_webhook_is_called_on_allocation_and_fails_closed():
    hook = webhooks()["claims.fairgate.dev"]
    [rule] = hook["rules"]
    assert (rule["apiGroups"], rule["resources"]) == (["resource.k8s.io"], ["resourceclaims/status"])
    assert rule["apiVersions"] == ["v1", "v1beta2", "v1beta1"]  # those before 1.34 serve no v1
    assert (rule["operations"], rule["scope"]) == (["UPDATE"], "Namespaced")
    assert hook["clientConfig"]["url"] == "https://127.0.0.1:8443/claims"
    assert (hook["failurePolicy"], hook["timeoutSeconds"], hook["sideEffects"]) == ("Fail", 5, "None")
    assert hook["matchConditions"] == [
        {
            "name": "gets-devices",
            "expression": "has(object.status) && has(object.status.allocation) && "
            "!(has(oldObject.status) && has(oldObject.status.allocation))",
        }
    ]


def test_the_workloads_webhook_selects_every_kind_and_fails_open():
    own = WorkloadKind("ml.example.com", "Run", "runs")
    hook = webhooks(Policy(workloads=WorkloadRules(kinds=(own,))))["workloads.fairgate.dev"]
    assert hook["clientConfig"]["url"] == "https://127.0.0.1:8443/workloads"
    assert (hook["failurePolicy"], hook["timeoutSeconds"], hook["sideEffects"]) == ("Ignore", 2, "None")
    rules = {rule["apiGroups"][0]: rule for rule in hook["rules"]}
    assert {operation for rule in hook["rules"] for operation in rule["operations"]} == {"CREATE"}
    assert rules["apps"]["resources"] == ["daemonsets", "deployments", "replicasets", "statefulsets"]
    assert (rules["kubeflow.org"]["apiVersions"], "mpijobs" in rules["kubeflow.org"]["resources"]) == (
        ["v1", "v1alpha1", "v1beta1", "v2beta1"],
        True,
    )
    assert (rules["ml.example.com"]["apiVersions"], rules["ml.example.com"]["resources"]) == (["*"], ["runs"])
    assert "pods" not in rules[""]["resources"]


def test_the_jobs_webhook_selects_jobs_with_gpus_and_fails_open():
    hook = webhooks()["jobs.fairgate.dev"]
    [rule] = hook["rules"]
    assert (rule["apiGroups"], rule["apiVersions"], rule["resources"]) == (["batch"], ["v1"], ["jobs"])
    assert rule["operations"] == ["CREATE", "UPDATE"]
    assert hook["clientConfig"]["url"] == "https://127.0.0.1:8443/jobs"
    assert (hook["failurePolicy"], hook["timeoutSeconds"], hook["sideEffects"]) == ("Ignore", 2, "None")
    names = ["may-ask-for-gpus", "can-have-failure-policy", "changes-failure-policy", "is-not-left-alone"]
    assert [condition["name"] for condition in hook["matchConditions"]] == names
    concerns = gpu_pod_expression(Policy(), spec="object.spec.template.spec")
    assert hook["matchConditions"][0]["expression"] == concerns


def test_the_gangs_webhook_selects_workloads_with_the_annotation_and_fails_open():
    found = webhooks()
    hook = found["gangs.fairgate.dev"]
    assert hook["rules"] == found["workloads.fairgate.dev"]["rules"]
    assert hook["clientConfig"]["url"] == "https://127.0.0.1:8443/gangs"
    assert (hook["failurePolicy"], hook["timeoutSeconds"], hook["sideEffects"]) == ("Ignore", 2, "None")
    names = [condition["name"] for condition in hook["matchConditions"]]
    assert names == ["is-made-by-no-controller", "has-marks-for-pods"]
    expression = hook["matchConditions"][1]["expression"]
    assert '["fairgate.dev/gang"] : "!absent") == "true" || ' in expression
    assert '["fairgate.dev/topology"] : "!absent") != "!absent" || ' in expression
    assert '["fairgate.dev/run-time"] : "!absent") != "!absent" || ' in expression
    assert '["fairgate.dev/minimum"] : "!absent") != "!absent" || request.kind.group == "ray.io" || ' in expression
    assert (
        '(request.kind.kind == "PyTorchJob" && has(object.spec.elasticPolicy)) || (request.kind.group == ' in expression
    )
    assert ') && !(request.kind.group == "batch" && ' in expression


def test_the_ca_bundle_is_base64():
    for hook in webhooks().values():
        assert base64.b64decode(hook["clientConfig"]["caBundle"]) == CA


def test_a_service_reference_has_the_path():
    hook = webhooks(service=ServiceReference("fairgate-system", "fairgate", 8443))["validate.fairgate.dev"]
    assert hook["clientConfig"]["service"] == {
        "namespace": "fairgate-system",
        "name": "fairgate",
        "port": 8443,
        "path": "/validate",
    }
    assert "url" not in hook["clientConfig"]


def test_a_url_may_end_in_a_slash():
    assert webhooks(url="https://h:1/")["mutate.fairgate.dev"]["clientConfig"]["url"] == "https://h:1/mutate"


@pytest.mark.parametrize("where", [{"url": None}, {"url": "https://h", "service": ServiceReference("a", "b")}])
def test_exactly_one_of_url_and_service_is_required(where):
    with pytest.raises(ValueError, match="exactly one of url and service"):
        configurations(**where)


def test_system_and_exempt_namespaces_are_excluded():
    policy = Policy(exempt_namespaces=("monitoring", "kube-system", "ci-*", "a?", "[x]"))
    for hook in webhooks(policy).values():
        assert hook["namespaceSelector"] == {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": sorted(["fairgate-system", "kube-system", "monitoring", *policy.operator_namespaces]),
                }
            ]
        }
        assert "gpu-operator" in hook["namespaceSelector"]["matchExpressions"][0]["values"]


def test_creations_are_filtered_by_resource():
    hooks = webhooks()
    [mutate], [validate] = (hooks[f"{name}.fairgate.dev"]["matchConditions"] for name in ("mutate", "validate"))
    assert mutate == validate
    assert mutate["expression"] == gpu_pod_expression(Policy())


def test_pods_of_a_pool_are_sent_to_the_mutating_webhook_alone():
    match = LabelSelector((Requirement("app", Operator.EXISTS),))
    policy = Policy(pools=(Pool("apart", match=match), Pool("rest")))
    hooks = webhooks(policy)
    assert hooks["mutate.fairgate.dev"]["matchConditions"][0]["expression"] == pool_pod_expression(policy)
    assert hooks["validate.fairgate.dev"]["matchConditions"][0]["expression"] == gpu_pod_expression(policy)
