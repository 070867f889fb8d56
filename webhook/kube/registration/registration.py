"""The webhook configurations that register Fairgate: selected requests, endpoints, timeouts and failure policies."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from webhook.core.model.policy import Enforcement, Policy
from webhook.kube.kinds.table import kind_table
from webhook.kube.objects import keys
from webhook.kube.registration.conditions import (
    GETS_DEVICES,
    gpu_pod_expression,
    of_gangs,
    of_jobs,
    of_workloads,
    pool_pod_expression,
)

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
        # their likely starts do not know its run time.
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
