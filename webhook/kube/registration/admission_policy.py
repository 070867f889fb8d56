"""Builders of ValidatingAdmissionPolicies and their bindings, and the CEL expressions that several of them share."""

import json
from collections.abc import Iterable
from typing import Any, Final

from webhook.core.model.policy import Policy
from webhook.kube.objects import keys
from webhook.kube.registration.registration import GLOB, namespace_selector, pattern_of, quoted

_Json = dict[str, Any]

EXEMPT_LABEL: Final = (
    f"(has(namespaceObject.metadata.labels) && {quoted(keys.EXEMPT)} in namespaceObject.metadata.labels && "
    f'namespaceObject.metadata.labels[{quoted(keys.EXEMPT)}] != "false")'
)


def admission_policy(
    name: str,
    *,
    rules: list[_Json],
    conditions: dict[str, str],
    validations: Iterable[_Json],
    of: Policy | None = None,
) -> _Json:
    """Return a policy that validates the requests selected by `rules` where all conditions hold.

    `of`: only in the namespaces that a policy of Fairgate does not exempt.
    """
    namespaces = {} if of is None else {"namespaceSelector": namespace_selector(of)}
    if of is not None:
        conditions = {"is-not-exempt": not_exempt_expression(of), **conditions}
    return {
        "apiVersion": keys.REGISTRATION_API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "labels": dict(keys.OWN_LABELS)},
        "spec": {
            # Fail: a request must not be admitted because an expression could not be evaluated.
            "failurePolicy": "Fail",
            "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": rules, **namespaces},
            "matchConditions": [{"name": key, "expression": expression} for key, expression in conditions.items()],
            "validations": [{**each, "reason": "Forbidden"} for each in validations],
        },
    }


def policy_binding(policy: _Json, actions: tuple[str, ...], *, param_ref: _Json | None = None) -> _Json:
    """Return the binding of a policy: `actions` apply to what it refuses, `param_ref` selects its parameters."""
    name = policy["metadata"]["name"]
    spec = {"policyName": name, "validationActions": list(actions)}
    return {
        "apiVersion": keys.REGISTRATION_API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": dict(keys.OWN_LABELS)},
        "spec": spec if param_ref is None else {**spec, "paramRef": dict(param_ref)},
    }


def core_rule(resources: list[str], *operations: str, scope: str = "Namespaced") -> _Json:
    """Return a rule for resources of the core API group."""
    return {
        "apiGroups": [""],
        "apiVersions": [keys.CORE_API],
        "operations": list(operations),
        "resources": resources,
        "scope": scope,
    }


def trusted_expression(users: Iterable[str], others: str) -> str:
    """Return a CEL expression: the user is one of `users`, or the expression `others` holds."""
    named = sorted(set(users))
    return f"request.userInfo.username in {json.dumps(named)} || {others}" if named else others


def own_expression() -> str:
    """Return a CEL expression: the user has Fairgate's own right, to update TeamLedgers."""
    return f'authorizer.group({quoted(keys.OWN_GROUP)}).resource({quoted(keys.TEAM_LEDGERS)}).check("update").allowed()'


def not_exempt_expression(policy: Policy) -> str:
    """Return a CEL expression: the namespace matches no exempt glob. Exact names are excluded by a selector."""
    globs = [name for name in policy.exempt if set(name) & GLOB]
    matched = [f"request.namespace.matches({quoted(pattern_of(glob))})" for glob in globs]
    return " && ".join(f"!{each}" for each in matched) or "true"
