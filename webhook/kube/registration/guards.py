"""What the API server guards by itself, also while Fairgate is down: ValidatingAdmissionPolicies and their bindings.

Whom they let through is asked of RBAC, so that no name must be known: who may write TeamLedgers is Fairgate, and who
may patch nodes could take a taint off as well. None of them waits for Fairgate, and none of it is on a decision's way.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from webhook.core.dra.dra_claims import ADMIN_ACCESS
from webhook.core.model.policy import DeviceAccess, Enforcement, Policy
from webhook.core.model.reason import Code
from webhook.kube.objects import keys
from webhook.kube.pod.tier_patch import FIELD_MANAGER
from webhook.kube.registration.admission_policy import (
    EXEMPT_LABEL,
    admission_policy,
    core_rule,
    is_not_exempt,
    policy_binding,
    trusted_expression,
)
from webhook.kube.registration.device_guards import device_guards
from webhook.kube.registration.held_guards import PARAM_REF, held_guards
from webhook.kube.registration.registration import gpu_pod_expression, namespace_selector, quoted, value_of

LABELS: Final = "fairgate-labels"
HELD_ROOM: Final = "fairgate-held-room"
TENANCY: Final = "fairgate-tenancy"
FORGED: Final = "fairgate-forged"
GRACE: Final = "fairgate-grace"
ASSIGN_VERB: Final = "assign"
"""Who may `assign` `namespaces` of our API group may say which team a namespace belongs to, or that it is exempt."""

TENANCY_LABELS: Final = (keys.EXEMPT, ADMIN_ACCESS)
"""Labels of namespaces whose pods are not judged, or whose claims get devices without being counted."""

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
    made = [
        _labels(trusted_users),
        _held_room(trusted_users),
        _tenancy(policy, trusted_users),
        _forged(policy, trusted_users),
        _grace(policy, trusted_users),
    ]
    bound = [part for guard in made for part in (guard, policy_binding(guard, actions))]
    for guard in held_guards(trusted_users):
        bound += (guard, policy_binding(guard, actions, param_ref=PARAM_REF))
    match policy.defaults.device_access:
        case DeviceAccess.REJECT:
            device_actions = actions
        case DeviceAccess.WARN:
            device_actions = _ACTIONS[Enforcement.WARN] if policy.is_enforced else actions
        case DeviceAccess.IGNORE:
            return bound
    devices = device_guards(policy)
    return [*bound, *(part for guard in devices for part in (guard, policy_binding(guard, device_actions)))]


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
        rules=[core_rule(["pods", "pods/status"], "UPDATE"), core_rule(["bindings", "pods/binding"], "CREATE")],
        conditions={"changes-fairgate-keys": changed_keys_expression(_GUARDED)},
        allowed=trusted_expression(trusted_users, f"({manager} && authorizer.group({by_us})"),
        message=f'"only Fairgate may change " + [{told}].filter(t, t != "").join(", ") + '
        f'": leave it as it is ({Code.PROTECTED_KEY_CHANGED})"',
    )


def _held_room(trusted_users: Iterable[str]) -> _Json:
    """Nobody but the evictor lets a pod into the room that is kept for others."""
    held = f"has(t.key) && t.key == {quoted(keys.HELD)}"
    old = "oldObject != null && has(oldObject.spec.tolerations) && oldObject.spec.tolerations.exists(o, o == t)"
    return _policy(
        HELD_ROOM,
        rules=[core_rule(["pods"], "CREATE", "UPDATE")],
        conditions={
            "tolerates-held-room": f"has(object.spec.tolerations) && "
            f"object.spec.tolerations.exists(t, {held} && !({old}))"
        },
        allowed=trusted_expression(trusted_users, 'authorizer.group("").resource("nodes").check("patch").allowed()'),
        message=f'"only Fairgate lets pods tolerate {keys.HELD}, for whom it keeps that room: '
        f'take the toleration out ({Code.HELD_ROOM})"',
    )


def _tenancy(policy: Policy, trusted_users: Iterable[str]) -> _Json:
    """Nobody moves a namespace to another team, or out of what is counted, but who was given that right."""
    own = (("labels", tuple(sorted({*TENANCY_LABELS, *_selecting_labels(policy)}))),)
    namespaces = ["namespaces", "namespaces/status", "namespaces/finalize"]
    may_assign = f'authorizer.group({quoted(keys.OWN_GROUP)}).resource("namespaces").check({quoted(ASSIGN_VERB)})'
    return _policy(
        TENANCY,
        rules=[core_rule(namespaces, "CREATE", "UPDATE", scope="Cluster")],
        conditions={"changes-tenancy": changed_keys_expression(own)},
        allowed=trusted_expression(trusted_users, f"{may_assign}.allowed()"),
        message=f'"labels {", ".join(own[0][1])} say which team a namespace belongs to, or that what its pods hold '
        f"does not count: changing them takes the right to {ASSIGN_VERB} namespaces of {keys.OWN_GROUP} "
        f'({Code.TENANCY_CHANGED})"',
    )


def _forged(policy: Policy, trusted_users: Iterable[str]) -> _Json:
    """Nobody makes a pod without GPUs that looks as if Fairgate had decided on it; the others are its own to judge."""
    made = _policy(
        FORGED,
        rules=[core_rule(["pods"], "CREATE")],
        conditions={
            "is-not-exempt": is_not_exempt(policy),
            "carries-fairgate-keys": changed_keys_expression(_GUARDED),
            "asks-for-no-gpu": f"!({gpu_pod_expression(policy)})",
        },
        allowed=trusted_expression(trusted_users, EXEMPT_LABEL),
        message=f'"only pods with GPUs carry {", ".join(keys.GUARDED_LABELS + keys.GUARDED_ANNOTATIONS)}: '
        f'take them out ({Code.PROTECTED_KEY_CHANGED})"',
    )
    made["spec"]["matchConstraints"]["namespaceSelector"] = namespace_selector(policy)
    return made


def _grace(policy: Policy, trusted_users: Iterable[str]) -> _Json:
    """Nobody lets a pod run on with its GPUs by deleting, or evicting, it with a long grace period.

    Who may patch nodes may: a drain asks for it. An Eviction does not show its pod, so those of all pods are judged.
    """
    longest, evicted = policy.defaults.maximum_grace_seconds, "dyn(object).deleteOptions"
    asked = (
        'request.operation == "DELETE" ? '
        "(has(request.options.gracePeriodSeconds) ? request.options.gracePeriodSeconds : 0) : "
        f"(has({evicted}) && has({evicted}.gracePeriodSeconds) ? {evicted}.gracePeriodSeconds : 0)"
    )
    of_gpus = gpu_pod_expression(policy, spec="dyn(oldObject).spec")
    made = _policy(
        GRACE,
        rules=[core_rule(["pods"], "DELETE"), core_rule(["pods/eviction"], "CREATE")],
        conditions={
            "is-not-exempt": is_not_exempt(policy),
            "asks-for-long": f"({asked}) > {longest}",
            "may-hold-gpus": f'request.operation == "CREATE" || {of_gpus}',
        },
        allowed=trusted_expression(
            trusted_users, f'{EXEMPT_LABEL} || authorizer.group("").resource("nodes").check("patch").allowed()'
        ),
        message=f'"the grace period of a pod with GPUs is at most {longest} seconds: '
        f'ask for less, or leave it out ({Code.GRACE_PERIOD_TOO_LONG})"',
    )
    made["spec"]["matchConstraints"]["namespaceSelector"] = namespace_selector(policy)
    return made


def changed_keys_expression(guarded: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Write in CEL: a label or annotation of these is not what it was, or is there from the beginning."""
    return " || ".join(
        f"{value_of('object', at, key)} != {value_of('oldObject', at, key)}" for at, names in guarded for key in names
    )


_GUARDED: Final = (("labels", keys.GUARDED_LABELS), ("annotations", keys.GUARDED_ANNOTATIONS))


def _selecting_labels(policy: Policy) -> Iterator[str]:
    for team in policy.teams:
        if team.namespace_selector is not None:
            yield from (requirement.key for requirement in team.namespace_selector.requirements)


def _policy(name: str, *, rules: list[_Json], conditions: dict[str, str], allowed: str, message: str) -> _Json:
    said = {"expression": allowed, "messageExpression": message}
    return admission_policy(name, rules=rules, conditions=conditions, validations=[said])
