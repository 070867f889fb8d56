"""Updates the fields of registered objects that depend on the policy; all other fields stay as they are.

Control planes add terms to the namespaceSelector of every webhook and put them back when they are taken out: the
admissions enforcer of AKS (https://github.com/DataDog/datadog-agent/issues/55778), GKE Autopilot
(https://github.com/Dynatrace/dynatrace-operator/issues/2194). Such terms stay. They exclude namespaces, so the labels
that they read become labels of tenancy (`excluding_labels`, `guards`).
"""

from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from typing import Any, Final

from webhook.core.model.policy import Policy
from webhook.kube.objects import keys
from webhook.kube.registration.device_guards import DEVICES, SOURCES
from webhook.kube.registration.guards import FORGED, GRACE, TENANCY, guards
from webhook.kube.registration.registration import webhook_configurations
from webhook.kube.registration.size_guards import BINDING_SIZES, SIZES

_Json = dict[str, Any]

GUARD: Final = "ValidatingAdmissionPolicy"
PLURALS: Final = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
    GUARD: "validatingadmissionpolicies",
    f"{GUARD}Binding": "validatingadmissionpolicybindings",
}
"""The kinds that register Fairgate, with the plural names of their URLs."""
_GUARDS: Final = (TENANCY, FORGED, GRACE, DEVICES, SOURCES, SIZES, BINDING_SIZES)
"""The guards that depend on the policy."""
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
    depending = [each for each in made if each["kind"] == GUARD and each["metadata"]["name"] in _GUARDS]
    return [*webhook_configurations(policy, ca_bundle_pem=None, url=_PLACEHOLDER_URL), *depending]


def aligned_with_policy(found: _Json, wanted: _Json, *, is_served: bool) -> _Json:
    """Return the object found with the policy's fields of the wanted one; webhooks are matched by name.

    A webhook that fails open is changed to fail closed only if `is_served` and the API server has a CA to trust:
    before that nothing could answer, and no GPU pod could be created. One that fails closed stays so while the policy
    requires it. Terms of its namespaceSelector that are not Fairgate's stay.
    """
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
