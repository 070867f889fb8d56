"""What is installed, what differs.

Updates the fields of registered objects that depend on the policy; all other fields stay as they are.

Control planes add terms to the namespaceSelector of every webhook and put them back when they are taken out: the
admissions enforcer of AKS (https://github.com/DataDog/datadog-agent/issues/55778), GKE Autopilot
(https://github.com/Dynatrace/dynatrace-operator/issues/2194). Such terms stay. They exclude namespaces, so the labels
that they read become labels of tenancy (`excluding_labels`, `guards`).
"""

from base64 import b64decode
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, repeat
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from webhook.core.model.amounts import ONE_GPU, Namespace, TeamName
from webhook.core.model.policy import Enforcement, LabelSelector, Policy
from webhook.core.model.reasons import Code
from webhook.core.world.world import World
from webhook.kube.nodes.nodes import to_namespace
from webhook.kube.objects import keys, objects
from webhook.kube.objects.bounds import Selector, whole_selector
from webhook.kube.registration.guards import OF_POLICY, guards
from webhook.kube.registration.registration import (
    MUTATE_NAME,
    MUTATING_CONFIGURATION,
    VALIDATING_CONFIGURATION,
    webhook_configurations,
)

_Json = dict[str, Any]

GUARD: Final = "ValidatingAdmissionPolicy"
BINDING: Final = f"{GUARD}Binding"
PLURALS: Final = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
    GUARD: "validatingadmissionpolicies",
    BINDING: "validatingadmissionpolicybindings",
}
"""The kinds that register Fairgate, with the plural names of their URLs."""
_SELECTOR: Final = "namespaceSelector"
_OF_POLICY: Final = ("rules", "matchConditions", _SELECTOR)
"""The fields that select requests. How a webhook is reached and trusted does not depend on the policy."""
_LABELS: Final = "matchLabels"
_FAILURE: Final = "failurePolicy"
_FAIL, _IGNORE = "Fail", "Ignore"

_PLACEHOLDER_URL: Final = "https://where.invalid"
"""How Fairgate is reached is not compared."""


def objects_from_policy(policy: Policy, *, excluding: Iterable[str] = ()) -> list[_Json]:
    """Return the registered objects that depend on the policy, with the fields that do; `excluding` as in `guards`."""
    made = guards(policy, excluding=excluding)
    depending = [each for each in made if each["kind"] == BINDING or each["metadata"]["name"] in OF_POLICY]
    return [*webhook_configurations(policy, ca_bundle_pem=None, url=_PLACEHOLDER_URL), *depending]


def aligned_with_policy(found: _Json, wanted: _Json, *, is_served: bool) -> _Json:
    """Return the object found with the policy's fields of the wanted one; webhooks are matched by name.

    A webhook that fails open is changed to fail closed only if `is_served` and the API server has a CA to trust:
    before that nothing could answer, and no GPU pod could be created. One that fails closed stays so while the policy
    requires it. Terms of its namespaceSelector that are not Fairgate's stay. Of a guard's binding only the actions
    depend on the policy: what enforce says.
    """
    if wanted["kind"] == BINDING:
        actions = found["spec"].get("validationActions") or ()
        is_same = sorted(actions) == sorted(wanted["spec"]["validationActions"])
        return (
            found
            if is_same
            else {**found, "spec": {**found["spec"], **_subset(wanted["spec"], ("validationActions",))}}
        )
    if wanted["kind"] == GUARD:
        return {**found, "spec": _aligned_guard(found["spec"], wanted["spec"])}
    by_name = {webhook["name"]: webhook for webhook in wanted["webhooks"]}

    def adjusted(webhook: _Json) -> _Json:
        target = by_name.get(webhook["name"])
        if target is None:
            return webhook
        failure = _failure_policy(webhook, target, is_served=is_served)
        selector = _joined(webhook.get(_SELECTOR) or {}, target[_SELECTOR])
        return {**webhook, **_subset(target, _OF_POLICY), _SELECTOR: selector, _FAILURE: failure}

    return {**found, "webhooks": [adjusted(webhook) for webhook in found.get("webhooks") or ()]}


def foreign_terms(selector: Mapping[str, Any]) -> list[_Json]:
    """Return the expressions of a webhook's namespaceSelector that others added.

    Fairgate's own excludes namespaces by name, and its own namespace is always among them.
    """
    return [each for each in selector.get("matchExpressions") or () if not _is_own(each)]


def excluding_keys(configurations: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the labels by which others exclude namespaces from these webhooks, that of their names among them."""
    selectors = [each.get(_SELECTOR) or {} for found in configurations for each in found.get("webhooks") or ()]
    terms = {term["key"] for selector in selectors for term in foreign_terms(selector)}
    return tuple(sorted(terms | {key for each in selectors for key in each.get(_LABELS) or ()}))


def excluding_labels(configurations: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the same without the label of names, which users cannot change."""
    return tuple(key for key in excluding_keys(configurations) if key != keys.NAMESPACE_NAME)


def fail_open_webhooks(adjusted: _Json, wanted: _Json) -> list[_Json]:
    """Return the webhooks that fail open although the policy requires them to fail closed."""
    closed = {webhook["name"] for webhook in wanted.get("webhooks", ()) if webhook[_FAILURE] == _FAIL}
    return [each for each in adjusted.get("webhooks") or () if each["name"] in closed and _is_open(each)]


def probe_path(webhook: _Json) -> str | None:
    """Return the path by which the API server proxies a health check to a webhook's Service; None for a URL.

    The request takes the same network path as reviews: what blocks it also blocks them.
    """
    service = webhook["clientConfig"].get("service")
    if not service:
        return None
    name = f"https:{service['name']}:{service.get('port', 443)}"
    return f"/api/v1/namespaces/{service['namespace']}/services/{name}/proxy/healthz"


def _is_own(term: Mapping[str, Any]) -> bool:
    values = term.get("values") or ()
    return term["key"] == keys.NAMESPACE_NAME and term["operator"] == "NotIn" and keys.OWN_NAMESPACE in values


def _joined(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> _Json:
    """Return the selector wanted, with what others added to the one found, in the order found."""
    own = wanted["matchExpressions"]
    there = found.get("matchExpressions") or ()
    if all(term in there for term in own) and all(term in own or not _is_own(term) for term in there):
        return dict(found)
    labels = {_LABELS: found[_LABELS]} if found.get(_LABELS) else {}
    return {**labels, "matchExpressions": [*own, *foreign_terms(found)]}


def _failure_policy(webhook: _Json, wanted: _Json, *, is_served: bool) -> str:
    if wanted[_FAILURE] == _IGNORE:
        return _IGNORE
    may_close = is_served and bool(webhook["clientConfig"].get("caBundle"))
    return _IGNORE if _is_open(webhook) and not may_close else _FAIL


def _is_open(webhook: _Json) -> bool:
    return bool(webhook.get(_FAILURE) == _IGNORE)


def _aligned_guard(found: _Json, wanted: _Json) -> _Json:
    constraints = {**found["matchConstraints"], **_subset(wanted["matchConstraints"], ("namespaceSelector",))}
    # The allowed users do not depend on the policy, but the messages do.
    validations = [
        {**one, **_subset(other, ("messageExpression",))}
        for one, other in zip(found["validations"], chain(wanted["validations"], repeat({})), strict=False)
    ]
    of_policy = _subset(wanted, ("matchConditions", "variables"))
    return {**found, **of_policy, "matchConstraints": constraints, "validations": validations}


def _subset(source: _Json, names: tuple[str, ...]) -> _Json:
    return {name: source[name] for name in names if name in source}


# What `fairgate doctor` reads from Kubernetes objects: how Fairgate is registered, and the result of a dry run.
#
# This module compares objects with what the policy requires; `fairgate doctor` interprets the results.


_Found = Mapping[str, Any]

CONFIGURATIONS: Final = (
    ("MutatingWebhookConfiguration", MUTATING_CONFIGURATION),
    ("ValidatingWebhookConfiguration", VALIDATING_CONFIGURATION),
)
USUAL_GPU: Final = "nvidia.com/gpu"
_NEVER_REVIEWED: Final = frozenset({keys.SYSTEM_NAMESPACE, keys.OWN_NAMESPACE})


def path_of(kind: str, name: str) -> str:
    """Return the API path of an object that registers Fairgate."""
    return f"/apis/{keys.REGISTRATION_API}/{PLURALS[kind]}/{name}"


@dataclass(frozen=True, slots=True)
class WebhookEndpoint:
    """How the API server reaches one webhook: the host that the certificate must name, and the CAs that it trusts."""

    webhook: str
    host: str
    ca_bundle: bytes
    service_namespace: str = ""


def webhook_endpoints(configuration: _Found) -> list[WebhookEndpoint]:
    """Return how the API server reaches each webhook of a configuration."""
    return [_caller(webhook["name"], webhook["clientConfig"]) for webhook in configuration.get("webhooks") or ()]


def _caller(name: str, client: _Found) -> WebhookEndpoint:
    bundle = _decoded(client.get("caBundle") or "")
    service = client.get("service")
    if service is not None:
        return WebhookEndpoint(name, f"{service['name']}.{service['namespace']}.svc", bundle, service["namespace"])
    return WebhookEndpoint(name, urlsplit(client.get("url") or "").hostname or "", bundle)


def _decoded(bundle: str) -> bytes:
    try:
        return b64decode(bundle)
    except ValueError:  # in a file, which no API server has checked: it has no certificate either
        return bundle.encode()


def registration_problems(policy: Policy, found: Mapping[str, _Found | None]) -> list[str]:
    """Return what is missing or different in the webhook configurations, given by name, for a policy."""
    if policy.enforce is Enforcement.OFF:
        return [f"{name} is registered, though the policy is off" for name, each in found.items() if each is not None]
    problems = []
    for wanted in webhook_configurations(policy, ca_bundle_pem=None, url=_PLACEHOLDER_URL):
        name = wanted["metadata"]["name"]
        present = found.get(name)
        problems += [f"{wanted['kind']} {name} is missing"] if present is None else _differences(name, wanted, present)
    return problems


def _differences(name: str, wanted: _Found, found: _Found) -> list[str]:
    by_name = {webhook["name"]: webhook for webhook in found.get("webhooks") or ()}
    problems = []
    for webhook in wanted["webhooks"]:
        present = by_name.get(webhook["name"])
        if present is None:
            problems.append(f"webhook {webhook['name']} is missing in {name}")
        elif present.get("failurePolicy") != webhook["failurePolicy"]:
            problems.append(
                f"webhook {webhook['name']} has failurePolicy {present.get('failurePolicy')}; "
                f"this policy requires {webhook['failurePolicy']}"
            )
    adjusted = aligned_with_policy(dict(found), dict(wanted), is_served=False)
    if [_selection(each) for each in adjusted["webhooks"]] != [
        _selection(each) for each in found.get("webhooks") or ()
    ]:
        problems.append(f"{name} does not select the policy's requests (rules, conditions or namespaces differ)")
    return problems


def unreviewed_namespaces(found: Iterable[_Found], world: World) -> dict[TeamName, list[Namespace]]:
    """Return the namespaces of each team whose requests do not reach a webhook, as others exclude them by a label.

    Those of no team are under `UNASSIGNED`, which no team is called. Exempt ones are left out.
    """
    selectors = [_selector(each) for configuration in found for each in configuration.get("webhooks") or ()]
    left_out: dict[TeamName, list[Namespace]] = {}
    for facts in world.namespaces():
        tenancy = world.tenancy(facts.name)
        labels = {**facts.labels, keys.NAMESPACE_NAME: facts.name}
        is_left_out = any(selector is not None and not selector.matches(labels) for selector in selectors)
        if is_left_out and not tenancy.is_exempt and facts.name not in _NEVER_REVIEWED:
            left_out.setdefault(tenancy.team_name, []).append(facts.name)
    return left_out


def world_of_namespaces(policy: Policy, namespaces: Iterable[_Found]) -> World:
    """Return a world with nothing but namespaces, as the API has them."""
    world = World(policy)
    for each in namespaces:
        world.set_namespace(to_namespace(msgspec.convert(each, objects.Namespace)))
    return world


def _selector(webhook: _Found) -> LabelSelector | None:
    return whole_selector(msgspec.convert(webhook.get("namespaceSelector") or {}, Selector))


def _selection(webhook: _Found) -> dict[str, Any]:
    """Return a webhook without its failurePolicy, which is compared separately."""
    return {key: value for key, value in webhook.items() if key != "failurePolicy"}


def wanted_guards(policy: Policy) -> list[tuple[str, str]]:
    """Return the kind and name of each guard and binding for a policy."""
    if policy.enforce is Enforcement.OFF:
        return []
    return [(each["kind"], each["metadata"]["name"]) for each in guards(policy)]


def guard_problems(
    policy: Policy,
    found: Mapping[tuple[str, str], _Found | None],
    configurations: Iterable[_Found] = (),
    *,
    by_files: Collection[tuple[str, str]] = (),
) -> list[str]:
    """Return which guards are missing, or differ from those of this version, policy and webhook configurations.

    Those that the API server has from files (`by_files`) are left out.
    """
    problems = []
    for wanted in (
        guards(policy, excluding=excluding_labels(configurations)) if policy.enforce is not Enforcement.OFF else ()
    ):
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        present = found.get((kind, name))
        if (kind, name) in by_files:
            continue
        if present is None:
            problems.append(f"{kind} {name} is missing")
        elif kind == GUARD:
            if aligned_with_policy(dict(present), dict(wanted), is_served=False) != present:
                problems.append(f"{kind} {name} differs from what this version generates for the policy")
        elif sorted(present["spec"].get("validationActions") or ()) != sorted(wanted["spec"]["validationActions"]):
            actions = ", ".join(wanted["spec"]["validationActions"])
            problems.append(f"{kind} {name} has other actions than {actions}")
    return problems


# -- a dry-run pod


class ProbeOutcome(StrEnum):
    """Whether the API server reached Fairgate in a dry-run creation."""

    YES = "yes"
    NOT_CALLED = "not called"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of a dry run; `text` is what Fairgate decided on the pod, or the API server's message."""

    reached: ProbeOutcome
    text: str = ""


def probe_pod(policy: Policy) -> dict[str, Any]:
    """Return a pod that requests one GPU, or one of another resource that the policy counts."""
    return pod_with_limits({probe_resource(policy): "1"})


def probe_resource(policy: Policy) -> str:
    """Return the name of whole GPUs, or of another resource that the policy counts."""
    whole = [name for name, weight in policy.resources.items() if weight == ONE_GPU]
    return USUAL_GPU if USUAL_GPU in whole else min(whole or policy.resources, default=USUAL_GPU)


def pod_with_limits(limits: Mapping[str, str], labels: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """Return a pod for a dry run."""
    container = {"name": "probe", "image": "registry.k8s.io/pause:3.10", "resources": {"limits": dict(limits)}}
    return {
        "apiVersion": keys.CORE_API,
        "kind": "Pod",
        "metadata": {"generateName": "fairgate-doctor-", "labels": dict(labels)},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }


def created_probe(pod: _Found) -> Probe:
    """Return the result of a dry run that created a pod: Fairgate was called if the pod has its label of a team.

    A pod that waits in the queue has that one, and of a tier at most what was asked for.
    """
    labels, annotations = (pod["metadata"].get(name) or {} for name in ("labels", "annotations"))
    if keys.TEAM not in labels:
        return Probe(ProbeOutcome.NOT_CALLED, "the API server admitted a GPU pod without calling Fairgate")
    if any(gate["name"] == keys.QUEUE_GATE for gate in pod["spec"].get("schedulingGates") or ()):
        return Probe(ProbeOutcome.YES, f"queued: {annotations.get(keys.WAITING, '')}")
    return Probe(ProbeOutcome.YES, f"admitted as {labels.get(keys.TIER, '')}")


def refused_probe(status: int, text: str) -> Probe:
    """Return the result of a dry run that was refused."""
    if "failed calling webhook" in text and keys.OWN_GROUP in text:
        return Probe(ProbeOutcome.FAILED, text)
    if Code.MUTATION_MISSING in text or "did not pass Fairgate's mutating webhook" in text:
        return Probe(ProbeOutcome.FAILED, f"{MUTATE_NAME} was not called, or did not answer in time: {text}")
    if "denied the request" in text and f".{keys.OWN_GROUP}" in text:
        return Probe(ProbeOutcome.YES, f"refused: {text.partition('denied the request: ')[2]}")
    return Probe(ProbeOutcome.UNKNOWN, f"{status} {text}")


def is_exempt(namespace: _Found | None) -> bool:
    """Whether a namespace's label exempts it from Fairgate."""
    labels = (namespace or {}).get("metadata", {}).get("labels") or {}
    return keys.EXEMPT in labels and labels[keys.EXEMPT] != "false"


def deployment_problems(found: Iterable[_Found]) -> list[str]:
    """Return the Deployments and StatefulSets that have fewer available pods than replicas."""
    problems = []
    for each in found:
        wanted = each["spec"].get("replicas", 1)
        available = each.get("status", {}).get("availableReplicas") or 0
        if available < wanted:
            name = f"{each.get('kind', 'Deployment')} {each['metadata']['name']}"
            problems.append(f"{name}: {available} of {wanted} replicas are available")
    return problems
