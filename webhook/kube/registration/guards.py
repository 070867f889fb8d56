"""The guards: ValidatingAdmissionPolicies with which the API server protects objects, also while Fairgate is down.

They are YAML in templates/, with places for named expressions (expressions.yaml) and for values of the policy, which
are here. They allow users by RBAC permission, not by name: a user who may write TeamLedgers is Fairgate, and one who
may patch nodes could also remove a taint.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from functools import cache
from importlib import resources
from typing import Any, Final

from webhook.core.devices.claims import ADMIN_ACCESS
from webhook.core.model.policy import DeviceAccess, Enforcement, Policy
from webhook.kube.objects import keys
from webhook.kube.objects.bounds import AFFINITY_BYTES, APPLIED, GROWTH_BYTES
from webhook.kube.registration.registration import (
    GLOB,
    claim_rule,
    gpu_name_expression,
    gpu_pod_expression,
    metadata_value,
    namespace_selector,
    pattern_of,
    quoted,
)
from webhook.yaml_text import read_documents

LABELS: Final = "fairgate-labels"
HELD_ROOM: Final = "fairgate-held-room"
TENANCY: Final = "fairgate-tenancy"
FORGED: Final = "fairgate-forged"
GRACE: Final = "fairgate-grace"
HELD_BINDINGS: Final = "fairgate-held-bindings"
HELD_NODE_NAMES: Final = "fairgate-held-node-names"
HELD_DEVICES: Final = "fairgate-held-devices"
DEVICES: Final = "fairgate-devices"
SOURCES: Final = "fairgate-devices-env"
VOLUMES: Final = "fairgate-devices-volumes"
SIZES: Final = "fairgate-sizes"
BINDING_SIZES: Final = "fairgate-binding-sizes"

PARAMETRIC: Final = (HELD_BINDINGS, HELD_NODE_NAMES, HELD_DEVICES)
"""They read HeldNodes as their parameter."""
OF_POLICY: Final = (TENANCY, FORGED, GRACE, DEVICES, SOURCES, SIZES, BINDING_SIZES)
"""Those that depend on the policy."""
GUARDS: Final = (
    *(LABELS, HELD_ROOM, TENANCY, FORGED, GRACE),
    *PARAMETRIC,
    *(DEVICES, SOURCES, VOLUMES),
    *(SIZES, BINDING_SIZES),
)
"""The names of all guards, and of their bindings."""

PARAM_REF: Final = {"selector": {}, "parameterNotFoundAction": "Allow"}
"""Without an object of the kind no node is held; only the evictor and administrators may create one. By name, the API
server would look in etcd for a missing one at each pod and each binding (getParamDirectly in its policy_dispatcher.go,
1.37). A selector is answered from its watch."""

_TENANCY_LABELS: Final = (keys.EXEMPT, ADMIN_ACCESS)
"""Labels of namespaces whose pods are exempt, or whose claims may use admin access, which is not counted."""

_ACTIONS: Final = {
    Enforcement.ENFORCE: ("Deny",),
    Enforcement.WARN: ("Warn", "Audit"),
    Enforcement.SHADOW: ("Audit",),
    Enforcement.OFF: ("Audit",),
}

_PLACE: Final = re.compile(r"\$\{([a-z-]+)(?:\(([^{}]*)\))?\}")

_Json = dict[str, Any]


def guards(policy: Policy, *, trusted_users: Iterable[str] = (), excluding: Iterable[str] = ()) -> list[_Json]:
    """Return the guards for a policy, each with its binding. `trusted_users` have the same permissions as Fairgate.

    `excluding` are labels by which the control plane excludes namespaces from webhooks (`excluding_labels`).
    """
    actions = _ACTIONS[policy.enforce]
    by_file = dict.fromkeys(("keys", "sizes", "held-nodes"), actions)
    match policy.defaults.device_access:
        case DeviceAccess.REJECT:
            by_file["devices"] = actions
        case DeviceAccess.WARN:
            by_file["devices"] = _ACTIONS[Enforcement.WARN] if policy.is_enforced else actions
        case DeviceAccess.IGNORE:
            pass
    values = _values(policy, sorted(set(trusted_users)), excluding)
    bound = []
    for file, of_file in by_file.items():
        for template in _templates()[file]:
            guard = _each_text(template, lambda text: _filled(text, values))
            bound += [guard, _binding(guard, of_file)]
    return bound


def changed_labels_expression(labels: Iterable[str]) -> str:
    """Return a CEL expression: one of these labels is changed, or set on creation."""
    return " || ".join(
        f"{metadata_value('object', 'labels', key)} != {metadata_value('oldObject', 'labels', key)}" for key in labels
    )


def _values(policy: Policy, trusted_users: list[str], excluding: Iterable[str]) -> _Json:
    """Return what stands in the places of templates, by their names."""
    tenancy = sorted({*_TENANCY_LABELS, *_selecting_labels(policy), *excluding})
    globs = (name for name in policy.exempt if set(name) & GLOB)
    is_none = (f"!request.namespace.matches({quoted(pattern_of(glob))})" for glob in globs)
    return {
        "namespaces": namespace_selector(policy),
        "not-exempt": " && ".join(is_none) or "true",  # exact names are excluded by the selector
        "trusted": f"request.userInfo.username in {json.dumps(trusted_users)} || " if trusted_users else "",
        "asks-for-gpus": gpu_pod_expression(policy),
        "asked-for-gpus": gpu_pod_expression(policy, spec="dyn(oldObject).spec"),
        "names-a-gpu": gpu_name_expression(),
        "claims": claim_rule(),
        "guarded-labels": json.dumps(keys.GUARDED_LABELS),
        "guarded-annotations": json.dumps(keys.GUARDED_ANNOTATIONS),
        "guarded-keys": ", ".join(keys.GUARDED_LABELS + keys.GUARDED_ANNOTATIONS),
        "tenancy-labels": ", ".join(tenancy),
        "changes-tenancy": changed_labels_expression(tenancy),
        "grace": policy.defaults.maximum_grace_seconds,
        "host-paths": json.dumps(policy.defaults.host_paths),
        "growth": GROWTH_BYTES,
        "growth-text": f"{GROWTH_BYTES:,}",
        "placement": AFFINITY_BYTES,
        "placement-text": f"{AFFINITY_BYTES:,}",
        "managers-most": APPLIED,
    }


def _selecting_labels(policy: Policy) -> Iterator[str]:
    for team in policy.teams:
        if team.namespace_selector is not None:
            yield from (requirement.key for requirement in team.namespace_selector.requirements)


def _binding(guard: _Json, actions: tuple[str, ...]) -> _Json:
    name = guard["metadata"]["name"]
    parameters = {"paramRef": dict(PARAM_REF)} if "paramKind" in guard["spec"] else {}
    return {
        "apiVersion": keys.REGISTRATION_API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": dict(keys.OWN_LABELS)},
        "spec": {"policyName": name, "validationActions": list(actions), **parameters},
    }


@cache
def _templates() -> dict[str, list[_Json]]:
    """Return the guards of each file, with named expressions in their places."""
    folder = resources.files("webhook.kube.registration") / "templates"
    found: dict[str, list[Any]] = {
        each.name.removesuffix(".yaml"): list(read_documents(each.read_bytes())) for each in folder.iterdir()
    }
    [expressions] = found.pop("expressions")
    return {name: _each_text(made, lambda text: _expanded(text, expressions)) for name, made in found.items()}


def _expanded(text: str, expressions: Mapping[str, str]) -> str:
    def named(place: re.Match[str]) -> str:
        name, given = place.groups()
        if name not in expressions:
            return place[0]
        expression = expressions[name]
        for number, argument in enumerate((given or "").split(", "), 1):
            expression = expression.replace(f"${number}", argument)
        return _expanded(expression, expressions)

    return _PLACE.sub(named, text)


def _filled(text: str, values: _Json) -> Any:  # noqa: ANN401 - a place alone may stand for an object
    if alone := _PLACE.fullmatch(text):
        return deepcopy(values[alone[1]])
    return _PLACE.sub(lambda place: str(values[place[1]]), text)


def _each_text(value: Any, change: Callable[[str], Any]) -> Any:  # noqa: ANN401 - JSON
    """Return a value with each text in it changed."""
    if isinstance(value, dict):
        return {key: _each_text(each, change) for key, each in value.items()}
    if isinstance(value, list):
        return [_each_text(each, change) for each in value]
    return change(value) if isinstance(value, str) else value
