"""What registered objects owe to the policy, brought in line with it; the rest stays as whoever made them said."""

from itertools import chain, repeat
from typing import Any, Final

from webhook.core.policy import Policy
from webhook.kube.device_guards import DEVICES, SOURCES
from webhook.kube.guards import FORGED, GRACE, TENANCY, guards
from webhook.kube.registration import webhook_configurations

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
"""Whom a webhook is asked about. How, when and by whom it is trusted is not the policy's to say."""

_ELSEWHERE: Final = "https://where.invalid"
"""How Fairgate is reached is not looked at."""


def wanted_by(policy: Policy) -> list[_Json]:
    """Make the objects in which the policy has a say, as far as it has."""
    depending = [each for each in guards(policy) if each["kind"] == GUARD and each["metadata"]["name"] in _GUARDS]
    return [*webhook_configurations(policy, ca_bundle_pem=None, url=_ELSEWHERE), *depending]


def in_step(found: _Json, wanted: _Json) -> _Json:
    """Give the object found with what the wanted one has from the policy; webhooks are told by name."""
    if wanted["kind"] == GUARD:
        return {**found, "spec": _guard_in_step(found["spec"], wanted["spec"])}
    by_name = {webhook["name"]: webhook for webhook in wanted["webhooks"]}

    def adjusted(webhook: _Json) -> _Json:
        return {**webhook, **_taken(by_name.get(webhook["name"], {}), _OF_POLICY)}

    return {**found, "webhooks": [adjusted(webhook) for webhook in found.get("webhooks") or ()]}


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
