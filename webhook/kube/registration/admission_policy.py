"""The shape of a ValidatingAdmissionPolicy and its binding, and what its expressions in CEL have in common."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from webhook.core.model.policy import Policy
from webhook.kube.objects import keys
from webhook.kube.registration.registration import GLOB, quoted

_Json = dict[str, Any]

EXEMPT_LABEL: Final = (
    f"(has(namespaceObject.metadata.labels) && {quoted(keys.EXEMPT)} in namespaceObject.metadata.labels && "
    f'namespaceObject.metadata.labels[{quoted(keys.EXEMPT)}] != "false")'
)


def admission_policy(
    name: str, *, rules: list[_Json], conditions: dict[str, str], validations: Iterable[_Json]
) -> _Json:
    """Make a policy that looks at these requests where all conditions hold."""
    return {
        "apiVersion": keys.REGISTRATION_API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "labels": dict(keys.OWN_LABELS)},
        "spec": {
            # Fail: an expression that cannot be evaluated must not open the door.
            "failurePolicy": "Fail",
            "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": rules},
            "matchConditions": [{"name": key, "expression": expression} for key, expression in conditions.items()],
            "validations": [{**each, "reason": "Forbidden"} for each in validations],
        },
    }


def policy_binding(guard: _Json, actions: tuple[str, ...], *, param_ref: Mapping[str, str] | None = None) -> _Json:
    """Bind a policy, with what happens to a request that it refuses, and the object that it takes its values from."""
    name = guard["metadata"]["name"]
    spec = {"policyName": name, "validationActions": list(actions)}
    return {
        "apiVersion": keys.REGISTRATION_API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": dict(keys.OWN_LABELS)},
        "spec": spec if param_ref is None else {**spec, "paramRef": dict(param_ref)},
    }


def core_rule(resources: list[str], *operations: str, scope: str = "Namespaced") -> _Json:
    """Name resources of the core group."""
    return {
        "apiGroups": [""],
        "apiVersions": [keys.CORE_API],
        "operations": list(operations),
        "resources": resources,
        "scope": scope,
    }


def trusted_expression(users: Iterable[str], others: str) -> str:
    """Write in CEL: the user is one of these, or `others` holds."""
    named = sorted(set(users))
    return f"request.userInfo.username in {json.dumps(named)} || {others}" if named else others


def is_not_exempt(policy: Policy) -> str:
    """Write in CEL: no glob of exempt namespaces matches; exact names are left out by a selector."""
    globs = [name for name in policy.exempt_namespaces if set(name) & GLOB]
    matched = [f"request.namespace.matches({quoted(_pattern(glob))})" for glob in globs]
    return " && ".join(f"!{each}" for each in matched) or "true"


def _pattern(glob: str) -> str:
    """Write a glob as a regular expression: the rest of a namespace's name is never special in one."""
    return f"^{glob.replace('*', '.*').replace('?', '.')}$"
