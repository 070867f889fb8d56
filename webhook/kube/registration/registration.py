"""The webhook configurations that send pods to us: who is asked, when, and what happens when we do not answer."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, assert_never

from webhook.core.model.gpu_names import PATTERN, looks_like_gpu
from webhook.core.model.names import DEVICE_CLASS
from webhook.core.model.policy import Enforcement, LabelSelector, Policy, UnknownGpu
from webhook.core.model.selector import Operator, Requirement
from webhook.kube.objects import keys
from webhook.kube.workloads.table import kind_table

MUTATE_PATH: Final = "/mutate"
VALIDATE_PATH: Final = "/validate"
WORKLOADS_PATH: Final = "/workloads"
CLAIMS_PATH: Final = "/claims"
JOBS_PATH: Final = "/jobs"
MUTATE_NAME: Final = "mutate.fairgate.dev"
VALIDATE_NAME: Final = "validate.fairgate.dev"
WORKLOADS_NAME: Final = "workloads.fairgate.dev"
CLAIMS_NAME: Final = "claims.fairgate.dev"
JOBS_NAME: Final = "jobs.fairgate.dev"

# Mutating configurations run in the order of their names: a late one sees what the others made of the pod.
MUTATING_CONFIGURATION: Final = "zz-fairgate"
VALIDATING_CONFIGURATION: Final = "fairgate"
_MUTATE_SECONDS: Final = 3
_VALIDATE_SECONDS: Final = 5
_WORKLOADS_SECONDS: Final = 2
GLOB: Final = frozenset("*?[")
_ABSENT: Final = "!absent"  # no label has this value; an annotation with it says nothing to us

_Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ServiceReference:
    """The Service in front of Fairgate's pods."""

    namespace: str
    name: str
    port: int = 443


def webhook_configurations(
    policy: Policy, *, ca_bundle_pem: bytes | None, url: str | None = None, service: ServiceReference | None = None
) -> list[_Json]:
    """Make the mutating and the validating configuration for a policy.

    While policy is not enforced nobody waits for Fairgate, and with `off` there are none. Fairgate is reached at `url`
    (`https://HOST:PORT`, no path) or through `service`, exactly one of them. Raises ValueError otherwise. Without
    `ca_bundle_pem` somebody else fills the caBundle in, and apply leaves it to him.
    """
    if (url is None) == (service is None):
        raise ValueError("say how the API server reaches Fairgate: by url or by service, one of them")

    def client(path: str) -> _Json:
        where: _Json = {"caBundle": b64encode(ca_bundle_pem).decode()} if ca_bundle_pem is not None else {}
        if service is not None:
            reference = {"namespace": service.namespace, "name": service.name, "port": service.port, "path": path}
            return {"service": reference, **where}
        return {"url": f"{(url or '').rstrip('/')}{path}", **where}

    selector = namespace_selector(policy)
    concerns_us = [{"name": "concerns-fairgate", "expression": gpu_pod_expression(policy)}]
    # only advice for pods without GPUs: they must not wait for us while we are away
    steers = [{"name": "concerns-fairgate", "expression": steers_expression(policy)}]
    mutate = {
        # Ignore: a pod that slips by unmutated is refused by the validating step with a silent retry, so failing here
        # as well would buy nothing and turn a lost advice into an outage.
        **_webhook(MUTATE_NAME, "CREATE", failure="Ignore", seconds=_MUTATE_SECONDS, conditions=steers),
        "clientConfig": client(MUTATE_PATH),
        "namespaceSelector": selector,
        "sideEffects": "None",
        "reinvocationPolicy": "IfNeeded",
    }
    jobs = {
        # Ignore: a Job without the rule runs all the same, and reclaim then keeps off the last of its failures.
        **_webhook(JOBS_NAME, "CREATE", failure="Ignore", seconds=_WORKLOADS_SECONDS, conditions=_of_jobs(policy)),
        "rules": [
            _rule("batch", versions=["v1"], resources=["jobs"], operation="CREATE")
            | {"operations": ["CREATE", "UPDATE"]}
        ],
        "clientConfig": client(JOBS_PATH),
        "namespaceSelector": selector,
        "sideEffects": "None",
        "reinvocationPolicy": "IfNeeded",
    }
    validate = {
        # Fail: a hard limit is hard. The conditions keep pods that ask for no GPU out of our outages.
        **_webhook(VALIDATE_NAME, "CREATE", failure="Fail", seconds=_VALIDATE_SECONDS, conditions=concerns_us),
        "clientConfig": client(VALIDATE_PATH),
        "namespaceSelector": selector,
        "sideEffects": "NoneOnDryRun",
    }
    workloads = {
        # Ignore: it only warns, and where policy refuses, the pods' own limits hold all the same.
        **_webhook(
            WORKLOADS_NAME, "CREATE", failure="Ignore", seconds=_WORKLOADS_SECONDS, conditions=_of_workloads(policy)
        ),
        "rules": workload_rules(policy),
        "clientConfig": client(WORKLOADS_PATH),
        "namespaceSelector": selector,
        "sideEffects": "None",
    }
    claims = {
        # Fail: a claim that changed after its pod was let in must not get its devices while we are away.
        **_webhook(CLAIMS_NAME, "UPDATE", failure="Fail", seconds=_VALIDATE_SECONDS, conditions=_GETS_DEVICES),
        "rules": [_rule("resource.k8s.io", versions=["v1"], resources=["resourceclaims/status"], operation="UPDATE")],
        "clientConfig": client(CLAIMS_PATH),
        "namespaceSelector": selector,
        "sideEffects": "None",
    }
    if policy.enforce is Enforcement.OFF:
        return []
    if not policy.is_enforced:
        for webhook in (mutate, jobs, validate, workloads, claims):
            webhook |= {"failurePolicy": "Ignore", "timeoutSeconds": _WORKLOADS_SECONDS}
    return [
        _configuration("MutatingWebhookConfiguration", MUTATING_CONFIGURATION, [mutate, jobs]),
        _configuration("ValidatingWebhookConfiguration", VALIDATING_CONFIGURATION, [validate, workloads, claims]),
    ]


def with_ca_bundles(configuration: _Json, merge: Callable[[bytes], bytes]) -> _Json:
    """Let every webhook of a configuration trust what `merge` makes of what it trusts now; the rest stays as it is."""

    def changed(webhook: _Json) -> _Json:
        client = webhook["clientConfig"]
        bundle = b64encode(merge(b64decode(client.get("caBundle") or ""))).decode()
        return {**webhook, "clientConfig": {**client, "caBundle": bundle}}

    return {**configuration, "webhooks": [changed(webhook) for webhook in configuration.get("webhooks") or ()]}


_ALLOCATED: Final = "has({root}.status) && has({root}.status.allocation)"
_GETS_DEVICES: Final[list[_Json]] = [
    {
        "name": "gets-devices",
        "expression": f"{_ALLOCATED.format(root='object')} && !({_ALLOCATED.format(root='oldObject')})",
    }
]


def workload_rules(policy: Policy) -> list[_Json]:
    """Name the kinds that make pods, one rule for each group; those whose definitions are absent match nothing."""
    rows = [row for row in kind_table(policy.workloads.kinds).values() if row.is_workload]
    groups = sorted({row.kind.group for row in rows})
    return [
        _rule(
            group,
            versions=sorted({version for row in rows if row.kind.group == group for version in row.versions}),
            resources=sorted(row.kind.resource for row in rows if row.kind.group == group),
            operation="CREATE",
        )
        for group in groups
    ]


def _of_workloads(policy: Policy) -> list[_Json]:
    """Keep away what a controller made, whose warnings nobody would read, and Kubernetes' own kinds without GPUs."""
    template = '(request.kind.kind == "CronJob" ? object.spec.jobTemplate.spec.template : object.spec.template)'
    owners = "object.metadata.ownerReferences"
    made = f"has({owners}) && {owners}.exists(o, has(o.controller) && o.controller)"
    groups = ", ".join(quoted(group) for group in ("", "apps", "batch"))
    asks = gpu_pod_expression(policy, spec=f"{template}.spec")
    return [
        {"name": "is-made-by-no-controller", "expression": f"!({made})"},
        {"name": "may-ask-for-gpus", "expression": f"!(request.kind.group in [{groups}]) || {asks}"},
    ]


def _of_jobs(policy: Policy) -> list[_Json]:
    """Keep away Jobs without GPUs, those that can have no podFailurePolicy, and updates that leave it as it is."""
    new, old = "object.spec", "oldObject.spec"
    replaced = f'has({new}.podReplacementPolicy) && {new}.podReplacementPolicy != "Failed"'
    kept = f"has({new}.podFailurePolicy) && {new}.podFailurePolicy == {old}.podFailurePolicy"
    changes = f"has({old}.podFailurePolicy) && (!({kept}) || ({replaced}))"
    asked = value_of("object", "annotations", keys.JOB_EVICTIONS)
    return [
        {"name": "may-ask-for-gpus", "expression": gpu_pod_expression(policy, spec="object.spec.template.spec")},
        {"name": "can-have-failure-policy", "expression": f'{new}.template.spec.restartPolicy == "Never"'},
        {"name": "changes-failure-policy", "expression": f'request.operation == "CREATE" || ({changes})'},
        {"name": "is-not-left-alone", "expression": f"{asked} != {quoted(keys.COUNT_EVICTIONS)}"},
    ]


def gpu_pod_expression(policy: Policy, *, spec: str = "object.spec") -> str:
    """Write in CEL: a pod claims devices, or asks for a resource that policy counts or may have to refuse.

    `spec` is where its spec is found.
    """
    if not policy.resources:
        return "false"
    asks = " || ".join(
        f"(has(c.resources.{side}) && c.resources.{side}.exists(k, {_concerning(policy)}))"
        for side in ("limits", "requests")
    )
    containers = f"({spec}.containers + (has({spec}.initContainers) ? {spec}.initContainers : []))"
    return f"has({spec}.resourceClaims) || {containers}.exists(c, has(c.resources) && ({asks}))"


def steers_expression(policy: Policy) -> str:
    """Write in CEL: the pod concerns us, or a pool is for its kind even if it asks for no GPU."""
    kinds = [f" || ({_matching(pool.match)})" for pool in policy.pools if pool.match is not None]
    return gpu_pod_expression(policy) + "".join(kinds)


def _concerning(policy: Policy) -> str:
    """Write in CEL: the name of a resource k concerns us."""
    names = ", ".join(quoted(name) for name in sorted(policy.resources))
    asked = f"k in [{names}] || k.startsWith({quoted(DEVICE_CLASS)})"
    if policy.defaults.unknown_gpu is UnknownGpu.IGNORE:
        return asked
    known = ", ".join(quoted(name) for name in sorted(policy.ignored_resources) if looks_like_gpu(name))
    return f"{asked} || (k.matches({quoted(PATTERN)})" + (f" && !(k in [{known}]))" if known else ")")


def _matching(selector: LabelSelector) -> str:
    """Write in CEL: the pod's labels are selected."""
    return " && ".join(map(_meeting, selector.requirements))


def _meeting(requirement: Requirement) -> str:
    labels, key = "object.metadata.labels", quoted(requirement.key)
    is_there = f"has({labels}) && {key} in {labels}"
    values = ", ".join(map(quoted, requirement.values))
    match requirement.operator:
        case Operator.EXISTS:
            return f"({is_there})"
        case Operator.DOES_NOT_EXIST:
            return f"!({is_there})"
        case Operator.IN:
            return f"({is_there} && {labels}[{key}] in [{values}])"
        case Operator.NOT_IN:
            return f"!({is_there} && {labels}[{key}] in [{values}])"
        case Operator.GT | Operator.LT:  # for node affinity only: policy refuses them in a label selector
            return "false"
        case _ as never:
            assert_never(never)


def value_of(root: str, at: str, key: str) -> str:
    """Write in CEL: the value of a label or annotation (`at`) of an object, which is null where it is not there yet."""
    found = f"{root}.metadata.{at}"
    return f"({root} != null && has({found}) && {quoted(key)} in {found} ? {found}[{quoted(key)}] : {quoted(_ABSENT)})"


def quoted(text: str) -> str:
    """Quote for CEL, whose strings know JSON's escapes."""
    return json.dumps(text)


def namespace_selector(policy: Policy) -> _Json:
    """Keep out the namespaces that must never wait for us; the watch counts the pods of exempt ones all the same."""
    exact = {name for name in policy.exempt_namespaces if not GLOB & set(name)}
    return {"matchExpressions": [_not_in(sorted(exact | {keys.SYSTEM_NAMESPACE, keys.OWN_NAMESPACE}))]}


def _not_in(names: Iterable[str]) -> _Json:
    return {"key": keys.NAMESPACE_NAME, "operator": "NotIn", "values": list(names)}


def _webhook(name: str, operation: str, *, failure: str, seconds: int, conditions: list[_Json]) -> _Json:
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "rules": [_rule("", versions=["v1"], resources=["pods"], operation=operation)],
        "matchPolicy": "Equivalent",
        "matchConditions": conditions,
        "failurePolicy": failure,
        "timeoutSeconds": seconds,
    }


def _rule(group: str, *, versions: list[str], resources: list[str], operation: str) -> _Json:
    return {
        "apiGroups": [group],
        "apiVersions": versions,
        "operations": [operation],
        "resources": resources,
        "scope": "Namespaced",
    }


def _configuration(kind: str, name: str, webhooks: list[_Json]) -> _Json:
    return {
        "apiVersion": keys.REGISTRATION_API,
        "kind": kind,
        "metadata": {"name": name, "labels": dict(keys.OWN_LABELS)},
        "webhooks": webhooks,
    }
