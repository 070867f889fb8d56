"""The registration: which requests are selected, and the failure policies."""

import base64
import json
import re
from dataclasses import replace

import pytest

from webhook.core.model.policy import (
    BUILT_IN_RESOURCES,
    Defaults,
    Enforcement,
    LabelSelector,
    Policy,
    Pool,
    UnknownGpu,
    WorkloadKind,
    WorkloadRules,
)
from webhook.core.model.selector import Operator, Requirement
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
    assert len(found) == 5


def test_no_webhook_is_registered_while_the_policy_is_off():
    assert configurations(Policy(enforce=Enforcement.OFF)) == []


def test_only_mutating_webhooks_are_reinvoked():
    assert {name: hook.get("reinvocationPolicy") for name, hook in webhooks().items()} == {
        "mutate.fairgate.dev": "IfNeeded",
        "jobs.fairgate.dev": "IfNeeded",
        "validate.fairgate.dev": None,
        "workloads.fairgate.dev": None,
        "claims.fairgate.dev": None,
    }


def test_the_claims_webhook_is_called_on_allocation_and_fails_closed():
    hook = webhooks()["claims.fairgate.dev"]
    [rule] = hook["rules"]
    assert (rule["apiGroups"], rule["resources"]) == (["resource.k8s.io"], ["resourceclaims/status"])
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
                    "values": ["fairgate-system", "kube-system", "monitoring"],
                }
            ]
        }


def test_creations_are_filtered_by_resource():
    hooks = webhooks()
    [mutate], [validate] = (hooks[f"{name}.fairgate.dev"]["matchConditions"] for name in ("mutate", "validate"))
    assert mutate == validate
    assert mutate["expression"] == gpu_pod_expression(Policy())


# The expressions run on a real API server in the scenarios; here, a reading of the small part of CEL that they use.


class AbsentError(Exception):
    """An absent field was read: CEL would fail, and so would the request."""


class Value(dict):
    def __getattr__(self, name):
        if name == "exists":
            return lambda test: any(test(key) for key in self)
        try:
            return wrap(self[name])
        except KeyError:
            raise AbsentError(name) from None


class Values(list):
    def exists(self, test):
        return any(test(item) for item in self)

    def __add__(self, other):
        return Values([*self, *other])


class Text(str):
    def startsWith(self, start):  # noqa: N802 - CEL's name
        return self.startswith(start)

    def matches(self, pattern):
        return re.search(pattern, self) is not None


def wrap(value):
    if isinstance(value, dict):
        return Value({Text(key): wrap(item) for key, item in value.items()})
    return Values(map(wrap, value)) if isinstance(value, list) else value


def holds(expression, **objects):
    """Evaluate CEL by rewriting it to Python; has(a.b) is true if reading a.b succeeds."""
    strings = []

    def keep(found):
        strings.append(json.loads(found[0]))
        return f"S[{len(strings) - 1}]"

    text = re.sub(r'"(?:[^"\\]|\\.)*"', keep, expression)
    text = re.sub(r"has\(([\w.]+)\)", r"HAS(lambda: \1)", text)
    text = re.sub(r"exists\((\w), ", r"exists(lambda \1: ", text)
    text = re.sub(r"\(([^()?]*(?:\([^()]*\)[^()?]*)*) \? ([^:()]+) : ([^()]+?)\)", r"(\2 if \1 else \3)", text)
    text = text.replace("||", " or ").replace("&&", " and ").replace("!(", "not (").replace("false", "False")
    text = text.replace("true", "True")

    def has(read):
        try:
            read()
        except AbsentError:
            return False
        return True

    scope = {"S": strings, "HAS": has, "Values": Values, **{name: wrap(value) for name, value in objects.items()}}
    return eval(text.replace("[]", "Values()"), scope)


def pod(*containers, init=None, labels=None, annotations=None):
    metadata = {name: value for name, value in (("labels", labels), ("annotations", annotations)) if value is not None}
    spec = {"containers": list(containers)} | ({"initContainers": init} if init is not None else {})
    return {"metadata": metadata, "spec": spec}


GPU = "nvidia.com/gpu"
LIMITED = {"resources": {"limits": {GPU: "1"}}}
REQUESTED = {"resources": {"requests": {GPU: "1"}}}
PLAIN = {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}


@pytest.mark.parametrize(
    ("manifest", "want"),
    [
        (pod({}), False),
        (pod(PLAIN), False),
        (pod({"resources": {}}), False),
        (pod(LIMITED), True),
        (pod(REQUESTED), True),
        (pod(PLAIN, LIMITED), True),
        (pod(PLAIN, init=[]), False),
        (pod(PLAIN, init=[REQUESTED]), True),
        (pod(PLAIN, init=[PLAIN, {}]), False),
        (pod({"resources": {"limits": {"example.com/npu": "1"}}}), True),
        (pod({"resources": {"limits": {"example.com/input": "1"}}}), False),
        (pod({"resources": {"limits": {"aliyun.com/gpu-count": "1"}}}), True),
        (pod({"resources": {"limits": {"deviceclass.resource.kubernetes.io/fast": "1"}}}), True),
        (pod(PLAIN) | {"spec": {"containers": [PLAIN], "resourceClaims": [{"name": "gpus"}]}}, True),
    ],
)
def test_only_pods_with_a_counted_resource_are_sent(manifest, want):
    assert holds(gpu_pod_expression(Policy()), object=manifest) is want


def test_resource_names_come_from_the_policy():
    policy = Policy(resources={'odd"name\\.dev/gpu': 1, "example.com/npu": 1})
    odd = pod({"resources": {"limits": {'odd"name\\.dev/gpu': "1"}}})
    assert holds(gpu_pod_expression(policy), object=odd)
    assert holds(gpu_pod_expression(policy), object=pod(LIMITED)), "it must be refused, since nobody weighs it"
    named = replace(policy, ignored_resources=frozenset({GPU}))
    careless = replace(policy, defaults=Defaults(unknown_gpu=UnknownGpu.IGNORE))
    for lenient in (named, careless):
        assert holds(gpu_pod_expression(lenient), object=odd)
        assert not holds(gpu_pod_expression(lenient), object=pod(LIMITED))
    assert all(name in gpu_pod_expression(Policy()) for name in BUILT_IN_RESOURCES)


@pytest.mark.parametrize(
    ("requirement", "labels", "want"),
    [
        (Requirement("app", Operator.IN, ("kafka", "zk")), {"app": "kafka"}, True),
        (Requirement("app", Operator.IN, ("kafka",)), {"app": "web"}, False),
        (Requirement("app", Operator.IN, ("kafka",)), None, False),
        (Requirement("app", Operator.NOT_IN, ("web",)), None, True),
        (Requirement("app", Operator.NOT_IN, ("web",)), {"app": "web"}, False),
        (Requirement("app", Operator.EXISTS), {"app": ""}, True),
        (Requirement("app", Operator.EXISTS), {"tier": "x"}, False),
        (Requirement("app", Operator.DOES_NOT_EXIST), {"app": "x"}, False),
        (Requirement("app", Operator.DOES_NOT_EXIST), {"tier": "x"}, True),
    ],
)
def test_pods_without_gpus_that_match_a_pool_are_only_mutated(requirement, labels, want):
    policy = Policy(pools=(Pool("apart", match=LabelSelector((requirement,))), Pool("rest")))
    assert holds(pool_pod_expression(policy), object=pod(PLAIN, labels=labels)) is want
    assert not holds(gpu_pod_expression(policy), object=pod(PLAIN, labels=labels))
    hooks = webhooks(policy)
    assert hooks["mutate.fairgate.dev"]["matchConditions"][0]["expression"] == pool_pod_expression(policy)
    assert hooks["validate.fairgate.dev"]["matchConditions"][0]["expression"] == gpu_pod_expression(policy)


def test_a_policy_without_resources_selects_no_pod():
    assert gpu_pod_expression(Policy(resources={})) == "false"
