"""Webhook configurations, match conditions.

Match conditions of the webhooks, in CEL: which requests the API server sends to Fairgate.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, assert_never

from webhook.core.model.amounts import DEVICE_CLASS
from webhook.core.model.constraints import Operator, Requirement
from webhook.core.model.gpu_shares import OTHER_DEVICES, PATTERN, looks_like_gpu
from webhook.core.model.policy import Enforcement, LabelSelector, Policy, UnknownGpu
from webhook.kube.kinds.job_failures import DISRUPTION
from webhook.kube.kinds.table import kind_table
from webhook.kube.objects import keys

ABSENT: Final = "!absent"  # no label may have this value, and no annotation of ours has it

_Json = dict[str, Any]

_ALLOCATED: Final = "has({root}.status) && has({root}.status.allocation)"
GETS_DEVICES: Final[list[_Json]] = [
    {
        "name": "gets-devices",
        "expression": f"{_ALLOCATED.format(root='object')} && !({_ALLOCATED.format(root='oldObject')})",
    }
]


_OWNERS: Final = "object.metadata.ownerReferences"
_MADE_BY_NO_CONTROLLER: Final[_Json] = {
    "name": "is-made-by-no-controller",
    "expression": f"!(has({_OWNERS}) && {_OWNERS}.exists(o, has(o.controller) && o.controller))",
}


def of_workloads(policy: Policy) -> list[_Json]:
    """Return conditions that exclude objects of controllers, which ignore warnings, and built-in kinds without GPUs.

    Jobs that the jobs webhook has judged are excluded, too.
    """
    template = '(request.kind.kind == "CronJob" ? object.spec.jobTemplate.spec.template : object.spec.template)'
    groups = ", ".join(quoted(group) for group in ("", "apps", "batch"))
    requests = gpu_pod_expression(policy, spec=f"{template}.spec")
    # kube-apiserver evaluates every condition: in one expression the costly part is left out for Jobs with the rule
    may_ask = f"!(request.kind.group in [{groups}]) || (!({_DECIDES_EVICTIONS}) && ({requests}))"
    return [_MADE_BY_NO_CONTROLLER, {"name": "may-ask-for-gpus", "expression": may_ask}]


def of_gangs(policy: Policy) -> list[_Json]:
    """Return conditions that select workloads of which pod templates are to have annotations, unless of a controller.

    Those are workloads that are gangs, state their run time or minimum, or may be elastic.

    A Deployment's annotations are copied to its ReplicaSets, whose template must stay that of the Deployment. Jobs
    whose templates the jobs webhook has annotated are excluded, too.
    """
    gang = f"{metadata_value('object', 'annotations', keys.GANG)} == {quoted('true')}"
    domain = f"{metadata_value('object', 'annotations', keys.TOPOLOGY)} != {quoted(ABSENT)}"
    states = f"{metadata_value('object', 'annotations', keys.RUN_TIME)} != {quoted(ABSENT)}"
    keeps = f"{metadata_value('object', 'annotations', keys.MINIMUM)} != {quoted(ABSENT)}"
    requests = gpu_pod_expression(policy, spec="object.spec.template.spec")
    marks = f"{gang} || {domain} || {states} || {keeps} || {_IS_ELASTIC}"
    has_marks = f"({marks}) && !({_DECIDES_EVICTIONS} && ({requests}))"
    return [_MADE_BY_NO_CONTROLLER, {"name": "has-marks-for-pods", "expression": has_marks}]


def of_jobs(policy: Policy) -> list[_Json]:
    """Return conditions that exclude Jobs without GPUs, without restartPolicy Never, and updates without a change."""
    new, old = "object.spec", "oldObject.spec"
    replaced = f'has({new}.podReplacementPolicy) && {new}.podReplacementPolicy != "Failed"'
    kept = f"has({new}.podFailurePolicy) && {new}.podFailurePolicy == {old}.podFailurePolicy"
    changes = f"has({old}.podFailurePolicy) && (!({kept}) || ({replaced}))"
    return [
        {"name": "may-ask-for-gpus", "expression": gpu_pod_expression(policy, spec="object.spec.template.spec")},
        {"name": "can-have-failure-policy", "expression": f'{new}.template.spec.restartPolicy == "Never"'},
        {"name": "changes-failure-policy", "expression": f'request.operation == "CREATE" || ({changes})'},
        {"name": "is-not-left-alone", "expression": _NOT_LEFT_ALONE},
    ]


def gpu_pod_expression(policy: Policy, *, spec: str = "object.spec") -> str:
    """Return a CEL expression: the pod with this `spec` has claims, or resources that the policy counts or refuses."""
    if not policy.resources:
        return "false"
    requests = " || ".join(
        f"(has(c.resources.{side}) && c.resources.{side}.exists(k, {_concerning(policy)}))"
        for side in ("limits", "requests")
    )
    containers = f"({spec}.containers + (has({spec}.initContainers) ? {spec}.initContainers : []))"
    return f"has({spec}.resourceClaims) || {containers}.exists(c, has(c.resources) && ({requests}))"


def pool_pod_expression(policy: Policy) -> str:
    """Return a CEL expression: the pod may request GPUs, or its labels match a pool."""
    kinds = [f" || ({_matching(pool.match)})" for pool in policy.pools if pool.match is not None]
    return gpu_pod_expression(policy) + "".join(kinds)


def _concerning(policy: Policy) -> str:
    """Return a CEL expression: the policy counts the resource named k, or may refuse it as an unknown GPU."""
    names = ", ".join(quoted(name) for name in sorted(policy.resources))
    counted = f"k in [{names}] || k.startsWith({quoted(DEVICE_CLASS)})"
    if policy.defaults.unknown_gpu is UnknownGpu.IGNORE:
        return counted
    known = ", ".join(quoted(name) for name in sorted(policy.ignored_resources) if looks_like_gpu(name))
    return f"{counted} || ({gpu_name_expression()}" + (f" && !(k in [{known}]))" if known else ")")


def gpu_name_expression() -> str:
    """Return a CEL expression: the resource named k looks like a GPU, as `looks_like_gpu` says."""
    return f"k.matches({quoted(PATTERN)}) && !k.matches({quoted(OTHER_DEVICES)})"


def _matching(selector: LabelSelector) -> str:
    """Return a CEL expression: the selector matches the pod's labels."""
    return " && ".join(map(_matches_requirement, selector.requirements))


def _matches_requirement(requirement: Requirement) -> str:
    labels, key = "object.metadata.labels", quoted(requirement.key)
    is_present = f"has({labels}) && {key} in {labels}"
    values = ", ".join(map(quoted, requirement.values))
    match requirement.operator:
        case Operator.EXISTS:
            return f"({is_present})"
        case Operator.DOES_NOT_EXIST:
            return f"!({is_present})"
        case Operator.IN:
            return f"({is_present} && {labels}[{key}] in [{values}])"
        case Operator.NOT_IN:
            return f"!({is_present} && {labels}[{key}] in [{values}])"
        case Operator.GT | Operator.LT:  # node affinity only: the policy refuses them in a label selector
            return "false"
        case _ as never:
            assert_never(never)


def metadata_value(root: str, at: str, key: str) -> str:
    """Return a CEL expression: the value of a label or annotation (`at`) of an object, which may be null."""
    found = f"{root}.metadata.{at}"
    return f"({root} != null && has({found}) && {quoted(key)} in {found} ? {found}[{quoted(key)}] : {quoted(ABSENT)})"


def quoted(text: str) -> str:
    """Return a CEL string literal; CEL accepts JSON's escapes."""
    return json.dumps(text)


_NOT_LEFT_ALONE: Final = (
    f"{metadata_value('object', 'annotations', keys.JOB_EVICTIONS)} != {quoted(keys.COUNT_EVICTIONS)}"
)
_IS_ELASTIC: Final = (
    'request.kind.group == "ray.io" || (request.kind.kind == "PyTorchJob" && has(object.spec.elasticPolicy))'
    ' || (request.kind.group == "batch.volcano.sh" && request.kind.kind == "Job" && has(object.spec.minAvailable))'
)
_RULES: Final = "object.spec.podFailurePolicy.rules"
_PATTERNS: Final = "r.onPodConditions"
_MATCHES_EVICTIONS: Final = f'c.type == {quoted(DISRUPTION)} && (!has(c.status) || c.status == "True")'
_DECIDES_EVICTIONS: Final = (
    f'request.kind.group == "batch" && request.kind.kind == "Job" && {_NOT_LEFT_ALONE}'
    f" && has(object.spec.podFailurePolicy) && {_RULES} != null"
    f" && {_RULES}.exists(r, has({_PATTERNS}) && {_PATTERNS} != null && {_PATTERNS}.exists(c, {_MATCHES_EVICTIONS}))"
)
"""CEL: the object is a Job that has a rule about evictions, and may have got it from the jobs webhook.

If it asks for GPUs, that webhook was called and answered for the others (`job_reviews.answer_job`). If it failed, or
was called for another state of the Job, there is no rule of Fairgate, and the others are called.
"""


# The webhook configurations that register Fairgate: selected requests, endpoints, timeouts and failure policies.


MUTATE_PATH: Final = "/mutate"
VALIDATE_PATH: Final = "/validate"
WORKLOADS_PATH: Final = "/workloads"
CLAIMS_PATH: Final = "/claims"
JOBS_PATH: Final = "/jobs"
GANGS_PATH: Final = "/gangs"
MUTATE_NAME: Final = "mutate.fairgate.dev"
VALIDATE_NAME: Final = "validate.fairgate.dev"
WORKLOADS_NAME: Final = "workloads.fairgate.dev"
CLAIMS_NAME: Final = "claims.fairgate.dev"
JOBS_NAME: Final = "jobs.fairgate.dev"
GANGS_NAME: Final = "gangs.fairgate.dev"

# Mutating configurations run in the order of their names: a late one sees the changes of the others.
MUTATING_CONFIGURATION: Final = "zz-fairgate"
VALIDATING_CONFIGURATION: Final = "fairgate"
_MUTATE_SECONDS: Final = 3
_VALIDATE_SECONDS: Final = 5
_WORKLOADS_SECONDS: Final = 2
GLOB: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class ServiceReference:
    """The Service in front of Fairgate's pods."""

    namespace: str
    name: str
    port: int = 443


def webhook_configurations(
    policy: Policy, *, ca_bundle_pem: bytes | None, url: str | None = None, service: ServiceReference | None = None
) -> list[_Json]:
    """Return the mutating and the validating configuration for a policy.

    If the policy is not enforced, all webhooks fail open; with `off` there are no configurations. Fairgate is reached
    at `url` (`https://HOST:PORT`, no path) or through `service`; raises ValueError unless exactly one is given.
    Without `ca_bundle_pem` another process sets the caBundle, and `kubectl apply` does not change it.
    """
    if (url is None) == (service is None):
        raise ValueError("set exactly one of url and service, by which the API server reaches Fairgate")

    def client(path: str) -> _Json:
        where: _Json = {"caBundle": b64encode(ca_bundle_pem).decode()} if ca_bundle_pem is not None else {}
        if service is not None:
            reference = {"namespace": service.namespace, "name": service.name, "port": service.port, "path": path}
            return {"service": reference, **where}
        return {"url": f"{(url or '').rstrip('/')}{path}", **where}

    selector = namespace_selector(policy)
    concerns_us = [{"name": "concerns-fairgate", "expression": gpu_pod_expression(policy)}]
    # pods without GPUs are only mutated, never validated: they must not depend on Fairgate being available
    has_pool = [{"name": "concerns-fairgate", "expression": pool_pod_expression(policy)}]
    mutate = {
        # Ignore: the validating webhook refuses a pod that was not mutated, and the client retries silently. Failing
        # here as well would turn a missing mutation into an outage.
        **_webhook(MUTATE_NAME, "CREATE", failure="Ignore", seconds=_MUTATE_SECONDS, conditions=has_pool),
        "clientConfig": client(MUTATE_PATH),
        "namespaceSelector": selector,
        "sideEffects": "None",
        "reinvocationPolicy": "IfNeeded",
    }
    jobs = {
        # Ignore: a Job without the rule still runs, and reclaim then does not cause the last failure that it allows.
        # The webhooks for all kinds of workloads are called for it.
        **_webhook(JOBS_NAME, "CREATE", failure="Ignore", seconds=_WORKLOADS_SECONDS, conditions=of_jobs(policy)),
        "rules": [
            _rule("batch", versions=["v1"], resources=["jobs"], operation="CREATE")
            | {"operations": ["CREATE", "UPDATE"]}
        ],
        "clientConfig": client(JOBS_PATH),
        "namespaceSelector": selector,
        "sideEffects": "None",
        "reinvocationPolicy": "IfNeeded",
    }
    gangs = {
        # Ignore: its pods then are no gang by annotation, and start one by one as they would without Fairgate; and
        # what it states of their run time is not shown.
        **_webhook(GANGS_NAME, "CREATE", failure="Ignore", seconds=_WORKLOADS_SECONDS, conditions=of_gangs(policy)),
        "rules": workload_rules(policy),
        "clientConfig": client(GANGS_PATH),
        "namespaceSelector": selector,
        "sideEffects": "None",
        "reinvocationPolicy": "IfNeeded",
    }
    validate = {
        # Fail: limits are hard. The conditions exclude pods without GPUs, so that an outage does not affect them.
        **_webhook(VALIDATE_NAME, "CREATE", failure="Fail", seconds=_VALIDATE_SECONDS, conditions=concerns_us),
        "clientConfig": client(VALIDATE_PATH),
        "namespaceSelector": selector,
        "sideEffects": "NoneOnDryRun",
    }
    workloads = {
        # Ignore: it only warns; if the policy refuses workloads, the limits of their pods still hold.
        **_webhook(
            WORKLOADS_NAME, "CREATE", failure="Ignore", seconds=_WORKLOADS_SECONDS, conditions=of_workloads(policy)
        ),
        "rules": workload_rules(policy),
        "clientConfig": client(WORKLOADS_PATH),
        "namespaceSelector": selector,
        "sideEffects": "None",
    }
    claims = {
        # Fail: a claim that changed after its pod was admitted must not be allocated devices during an outage.
        **_webhook(CLAIMS_NAME, "UPDATE", failure="Fail", seconds=_VALIDATE_SECONDS, conditions=GETS_DEVICES),
        "rules": [claim_rule()],
        "clientConfig": client(CLAIMS_PATH),
        "namespaceSelector": selector,
        "sideEffects": "None",
    }
    if policy.enforce is Enforcement.OFF:
        return []
    if not policy.is_enforced:
        for webhook in (mutate, jobs, gangs, validate, workloads, claims):
            webhook |= {"failurePolicy": "Ignore", "timeoutSeconds": _WORKLOADS_SECONDS}
    return [
        _configuration("MutatingWebhookConfiguration", MUTATING_CONFIGURATION, [mutate, jobs, gangs]),
        _configuration("ValidatingWebhookConfiguration", VALIDATING_CONFIGURATION, [validate, workloads, claims]),
    ]


def with_ca_bundles(configuration: _Json, merge: Callable[[bytes], bytes]) -> _Json:
    """Return a configuration with each caBundle replaced by `merge(caBundle)`; all other fields stay unchanged."""

    def changed(webhook: _Json) -> _Json:
        client = webhook["clientConfig"]
        bundle = b64encode(merge(b64decode(client.get("caBundle") or ""))).decode()
        return {**webhook, "clientConfig": {**client, "caBundle": bundle}}

    return {**configuration, "webhooks": [changed(webhook) for webhook in configuration.get("webhooks") or ()]}


def workload_rules(policy: Policy) -> list[_Json]:
    """Return rules for the kinds that create pods, one per API group; kinds without a CRD match nothing."""
    rows = [row for row in kind_table(policy.workloads.kinds).values() if row.is_judged]
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


def namespace_selector(policy: Policy) -> _Json:
    """Return a selector that excludes system and exempt namespaces; the watch still counts the pods of exempt ones."""
    exact = {name for name in policy.exempt if not GLOB & set(name)}
    return {"matchExpressions": [_not_in(sorted(exact | {keys.SYSTEM_NAMESPACE, keys.OWN_NAMESPACE}))]}


def pattern_of(glob: str) -> str:
    """Return a glob as a regular expression of CEL; no other characters of namespace names are special in one."""
    return f"^{glob.replace('*', '.*').replace('?', '.').replace('[!', '[^')}$"


def claim_rule() -> _Json:
    """Return a rule for allocations of claims, in every version in which an API server may serve claims."""
    versions, resources = list(keys.DEVICES_VERSIONS), ["resourceclaims/status"]
    return _rule(keys.DEVICES_GROUP, versions=versions, resources=resources, operation="UPDATE")


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
