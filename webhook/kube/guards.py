"""What the API server guards by itself, also while Fairgate is down: ValidatingAdmissionPolicies and their bindings.

Whom they let through is asked of RBAC, so that no name must be known: who may write TeamLedgers is Fairgate, and who
may patch nodes could take a taint off as well. None of them waits for Fairgate, and none of it is on a decision's way.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from webhook.core.policy import DeviceAccess, Enforcement, Policy
from webhook.core.reason import Code
from webhook.kube import keys
from webhook.kube.registration import GLOB, namespace_selector, quoted, value_of
from webhook.kube.relabel import FIELD_MANAGER

LABELS: Final = "fairgate-labels"
HELD_ROOM: Final = "fairgate-held-room"
TENANCY: Final = "fairgate-tenancy"
DEVICES: Final = "fairgate-devices"
ASSIGN_VERB: Final = "assign"
"""Who may `assign` `namespaces` of our API group may say which team a namespace belongs to, or that it is exempt."""

_DEVICE_VARIABLES: Final = ("NVIDIA_VISIBLE_DEVICES", "AMD_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES")
_DEVICE_FILES: Final = r"^/+(dev/*)?$|^/+dev/+(nvidia|dri|kfd|accel|vfio)"
_DEVICE_MOUNTS: Final = "/var/run/nvidia-container-devices"  # NVIDIA's runtime takes names of devices from mounts there
_DEVICE_ANNOTATIONS: Final = "cdi.k8s.io/"  # container runtimes inject the devices that these name

_ACTIONS: Final = {
    Enforcement.ENFORCE: ("Deny",),
    Enforcement.WARN: ("Warn", "Audit"),
    Enforcement.SHADOW: ("Audit",),
    Enforcement.OFF: ("Audit",),
}

_Json = dict[str, Any]


def guards(policy: Policy, *, trusted_users: Iterable[str] = ()) -> list[_Json]:
    """Make the guards for a policy, each with its binding. `trusted_users` may do what else only Fairgate may."""
    actions = _ACTIONS[policy.enforce]
    made = [_labels(trusted_users), _held_room(trusted_users), _tenancy(policy, trusted_users)]
    bound = [part for guard in made for part in (guard, _binding(guard, actions))]
    match policy.defaults.device_access:
        case DeviceAccess.REJECT:
            device_actions = actions
        case DeviceAccess.WARN:
            device_actions = _ACTIONS[Enforcement.WARN] if policy.is_enforced else actions
        case DeviceAccess.IGNORE:
            return bound
    devices = _devices(policy)
    return [*bound, devices, _binding(devices, device_actions)]


def _labels(trusted_users: Iterable[str]) -> _Json:
    """Nobody but Fairgate changes a pod's team, tier or decision, not by its status or its binding either."""
    guarded = [(at, key) for at, names in _GUARDED for key in names]
    told = ", ".join(
        f'({value_of("object", at, key)} != {value_of("oldObject", at, key)} ? "{at[:-1]} {key}" : "")'
        for at, key in guarded
    )
    by_us = f'{quoted(keys.OWN_GROUP)}).resource({quoted(keys.TEAM_LEDGERS)}).check("update").allowed()'
    manager = f"has(request.options.fieldManager) && request.options.fieldManager == {quoted(FIELD_MANAGER)}"
    return _policy(
        LABELS,
        rules=[_rule(["pods", "pods/status"], "UPDATE"), _rule(["bindings", "pods/binding"], "CREATE")],
        conditions={"changes-fairgate-keys": changed_keys_expression(_GUARDED)},
        allowed=_trusted(trusted_users, f"({manager} && authorizer.group({by_us})"),
        message=f'"only Fairgate may change " + [{told}].filter(t, t != "").join(", ") + '
        f'": leave it as it is ({Code.PROTECTED_KEY_CHANGED})"',
    )


def _held_room(trusted_users: Iterable[str]) -> _Json:
    """Nobody but the evictor lets a pod into the room that is kept for others."""
    held = f"has(t.key) && t.key == {quoted(keys.HELD)}"
    old = "oldObject != null && has(oldObject.spec.tolerations) && oldObject.spec.tolerations.exists(o, o == t)"
    return _policy(
        HELD_ROOM,
        rules=[_rule(["pods"], "CREATE", "UPDATE")],
        conditions={
            "tolerates-held-room": f"has(object.spec.tolerations) && "
            f"object.spec.tolerations.exists(t, {held} && !({old}))"
        },
        allowed=_trusted(trusted_users, 'authorizer.group("").resource("nodes").check("patch").allowed()'),
        message=f'"only Fairgate lets pods tolerate {keys.HELD}, for whom it keeps that room: '
        f'take the toleration out ({Code.HELD_ROOM})"',
    )


def _tenancy(policy: Policy, trusted_users: Iterable[str]) -> _Json:
    """Nobody moves a namespace to another team, or out of Fairgate's sight, but who was given that right."""
    own = (("labels", tuple(sorted({keys.EXEMPT, *_selecting_labels(policy)}))),)
    may_assign = f'authorizer.group({quoted(keys.OWN_GROUP)}).resource("namespaces").check({quoted(ASSIGN_VERB)})'
    return _policy(
        TENANCY,
        rules=[_rule(["namespaces", "namespaces/status", "namespaces/finalize"], "CREATE", "UPDATE", scope="Cluster")],
        conditions={"changes-tenancy": changed_keys_expression(own)},
        allowed=_trusted(trusted_users, f"{may_assign}.allowed()"),
        message=f'"labels {", ".join(own[0][1])} say which team a namespace belongs to, or that it is exempt: changing '
        f"them takes the right to {ASSIGN_VERB} namespaces of {keys.OWN_GROUP} ({Code.TENANCY_CHANGED})" + '"',
    )


def _devices(policy: Policy) -> _Json:
    """Nobody reaches GPUs that he did not ask for, as far as that shows in the pod."""
    everywhere = " + ".join(
        f"(has(object.spec.{field}) ? object.spec.{field} : [])"
        for field in ("containers", "initContainers", "ephemeralContainers")
    )
    made = _policy(
        DEVICES,
        rules=[_rule(["pods"], "CREATE"), _rule(["pods/ephemeralcontainers"], "UPDATE")],
        conditions={"is-not-exempt": _is_not_exempt(policy)},
    )
    spec = made["spec"]
    spec["matchConstraints"]["namespaceSelector"] = namespace_selector(policy)
    spec["variables"] = [{"name": "containers", "expression": everywhere}]
    spec["validations"] = [
        {
            "expression": f"{_EXEMPT_LABEL} || !({broken})",
            "message": f"{told}: it may reach GPUs that the pod does not ask for; "
            f"ask for GPUs by resources ({Code.UNCOUNTED_DEVICE})",
            "reason": "Forbidden",
        }
        for told, broken in _ways_to_devices()
    ]
    return made


def _ways_to_devices() -> list[tuple[str, str]]:
    """List in words and in CEL how a pod reaches devices past its resources."""
    names, nothing = json.dumps(_DEVICE_VARIABLES), '["", "none", "void"]'
    variable = f"e.name in {names} && (has(e.valueFrom) || (has(e.value) && !(e.value in {nothing})))"
    privileged = "has(c.securityContext) && has(c.securityContext.privileged) && c.securityContext.privileged"
    ways = {
        f"sets {' or '.join(_DEVICE_VARIABLES)}": f"has(c.env) && c.env.exists(e, {variable})",
        f"mounts something below {_DEVICE_MOUNTS}": f"has(c.volumeMounts) && "
        f"c.volumeMounts.exists(m, m.mountPath.startsWith({quoted(_DEVICE_MOUNTS)}))",
        "is privileged": privileged,
    }
    found = [(f"a container {told}", f"variables.containers.exists(c, {broken})") for told, broken in ways.items()]
    paths = f"has(v.hostPath) && v.hostPath.path.matches({quoted(_DEVICE_FILES)})"
    annotations = "object.metadata.annotations"
    return [
        *found,
        ("a volume is a device of the node's", f"has(object.spec.volumes) && object.spec.volumes.exists(v, {paths})"),
        (
            f"an annotation {_DEVICE_ANNOTATIONS} names devices",
            f"has({annotations}) && {annotations}.exists(k, k.startsWith({quoted(_DEVICE_ANNOTATIONS)}))",
        ),
    ]


def changed_keys_expression(guarded: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Write in CEL: a label or annotation of these is not what it was, or is there from the beginning."""
    return " || ".join(
        f"{value_of('object', at, key)} != {value_of('oldObject', at, key)}" for at, names in guarded for key in names
    )


_GUARDED: Final = (("labels", keys.GUARDED_LABELS), ("annotations", keys.GUARDED_ANNOTATIONS))
_EXEMPT_LABEL: Final = (
    f"(has(namespaceObject.metadata.labels) && {quoted(keys.EXEMPT)} in namespaceObject.metadata.labels && "
    f'namespaceObject.metadata.labels[{quoted(keys.EXEMPT)}] != "false")'
)


def _selecting_labels(policy: Policy) -> Iterator[str]:
    for team in policy.teams:
        if team.namespace_selector is not None:
            yield from (requirement.key for requirement in team.namespace_selector.requirements)


def _is_not_exempt(policy: Policy) -> str:
    """Write in CEL: no glob of exempt namespaces matches; exact names are left out by a selector."""
    globs = [name for name in policy.exempt_namespaces if set(name) & GLOB]
    matched = [f"request.namespace.matches({quoted(_pattern(glob))})" for glob in globs]
    return " && ".join(f"!{each}" for each in matched) or "true"


def _pattern(glob: str) -> str:
    """Write a glob as a regular expression: the rest of a namespace's name is never special in one."""
    return f"^{glob.replace('*', '.*').replace('?', '.')}$"


def _trusted(users: Iterable[str], others: str) -> str:
    named = sorted(set(users))
    return f"request.userInfo.username in {json.dumps(named)} || {others}" if named else others


def _policy(
    name: str, *, rules: list[_Json], conditions: dict[str, str], allowed: str = "", message: str = ""
) -> _Json:
    return {
        "apiVersion": keys.REGISTRATION_API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "labels": dict(keys.OWN_LABELS)},
        "spec": {
            # Fail: an expression that cannot be evaluated must not open the door.
            "failurePolicy": "Fail",
            "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": rules},
            "matchConditions": [{"name": key, "expression": expression} for key, expression in conditions.items()],
            "validations": [{"expression": allowed, "messageExpression": message, "reason": "Forbidden"}],
        },
    }


def _binding(guard: _Json, actions: tuple[str, ...]) -> _Json:
    name = guard["metadata"]["name"]
    return {
        "apiVersion": keys.REGISTRATION_API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": dict(keys.OWN_LABELS)},
        "spec": {"policyName": name, "validationActions": list(actions)},
    }


def _rule(resources: list[str], *operations: str, scope: str = "Namespaced") -> _Json:
    return {
        "apiGroups": [""],
        "apiVersions": [keys.CORE_API],
        "operations": list(operations),
        "resources": resources,
        "scope": scope,
    }
