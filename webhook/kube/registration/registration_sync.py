"""What registered objects owe to the policy, brought in line with it; the rest stays as whoever made them said."""

from itertools import chain, repeat
from typing import Any, Final

from webhook.core.model.policy import Policy
from webhook.kube.registration.device_guards import DEVICES, SOURCES
from webhook.kube.registration.guards import FORGED, GRACE, TENANCY, guards
from webhook.kube.registration.registration import webhook_configurations

_Json = dict[str, Any]

GUARD: Final = "ValidatingAdmissionPolicy"
PLURALS: Final = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
    GUARD: "validatingadmissionpolicies",
    f"{GUARD}Binding": "validatingadmissionpolicybindings",
}
"""The kinds by which Fairgate is registered, by the names that their URLs have."""
_GUARDS: Final = (TENANCY, FORGED, GRACE, DEVICES, SOURCES)
"""The guards that read differently from policy to policy."""
_OF_POLICY: Final = ("rules", "matchConditions", "namespaceSelector")
"""Which requests a webhook is called for. How it is reached and by whom it is trusted is not the policy's to say."""
_FAILURE: Final = "failurePolicy"
_FAIL, _IGNORE = "Fail", "Ignore"

_ELSEWHERE: Final = "https://where.invalid"
"""How Fairgate is reached is not looked at."""


def objects_from_policy(policy: Policy) -> list[_Json]:
    """Make the objects in which the policy has a say, as far as it has."""
    depending = [each for each in guards(policy) if each["kind"] == GUARD and each["metadata"]["name"] in _GUARDS]
    return [*webhook_configurations(policy, ca_bundle_pem=None, url=_ELSEWHERE), *depending]


def aligned_with_policy(found: _Json, wanted: _Json, *, is_served: bool) -> _Json:
    """Give the object found with what the wanted one has from the policy; webhooks are matched by name.

    A webhook that fails open starts to fail closed only when `is_served` and the API server has a CA to trust: before
    that nothing could answer, and no GPU pod could be created. One that fails closed stays so while policy asks for it.
    """
    if wanted["kind"] == GUARD:
        return {**found, "spec": _guard_in_step(found["spec"], wanted["spec"])}
    by_name = {webhook["name"]: webhook for webhook in wanted["webhooks"]}

    def adjusted(webhook: _Json) -> _Json:
        target = by_name.get(webhook["name"])
        if target is None:
            return webhook
        failure = _failure_policy(webhook, target, is_served=is_served)
        return {**webhook, **_taken(target, _OF_POLICY), _FAILURE: failure}

    return {**found, "webhooks": [adjusted(webhook) for webhook in found.get("webhooks") or ()]}


def fail_open_webhooks(adjusted: _Json, wanted: _Json) -> list[_Json]:
    """List the webhooks that fail open although policy wants them to fail closed."""
    closed = {webhook["name"] for webhook in wanted.get("webhooks", ()) if webhook[_FAILURE] == _FAIL}
    return [each for each in adjusted.get("webhooks") or () if each["name"] in closed and _is_open(each)]


def probe_path(webhook: _Json) -> str | None:
    """Give the path by which the API server itself asks the Service of a webhook for its health; None for a URL.

    It takes the way that reviews take: whatever keeps it out keeps them out.
    """
    service = webhook["clientConfig"].get("service")
    if not service:
        return None
    name = f"https:{service['name']}:{service.get('port', 443)}"
    return f"/api/v1/namespaces/{service['namespace']}/services/{name}/proxy/healthz"


def _failure_policy(webhook: _Json, wanted: _Json, *, is_served: bool) -> str:
    if wanted[_FAILURE] == _IGNORE:
        return _IGNORE
    may_close = is_served and bool(webhook["clientConfig"].get("caBundle"))
    return _IGNORE if _is_open(webhook) and not may_close else _FAIL


def _is_open(webhook: _Json) -> bool:
    return bool(webhook.get(_FAILURE) == _IGNORE)


def _guard_in_step(found: _Json, wanted: _Json) -> _Json:
    constraints = {**found["matchConstraints"], **_taken(wanted["matchConstraints"], ("namespaceSelector",))}
    # Whom they let pass is not the policy's to say, but what they tell is.
    told = [
        {**one, **_taken(other, ("messageExpression",))}
        for one, other in zip(found["validations"], chain(wanted["validations"], repeat({})), strict=False)
    ]
    of_policy = _taken(wanted, ("matchConditions", "variables"))
    return {**found, **of_policy, "matchConstraints": constraints, "validations": told}


def _taken(source: _Json, names: tuple[str, ...]) -> _Json:
    return {name: source[name] for name in names if name in source}
