"""Admission policies that guard labels and held nodes.

Guards of held room: the API server binds no pod of a team to a held node except those that its room is held for.

A toleration without a key matches every taint, and a custom scheduler may ignore taints. These guards check requests
that every scheduler must send. The pods of other namespaces (kube-system, Fairgate's own, exempt ones, those of no
team) pass.

They fail open: where the definition of HeldNodes is missing, pods must still be bound.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from webhook.core.devices.claims import ADMIN_ACCESS
from webhook.core.model.policy import DeviceAccess, Enforcement, Policy
from webhook.core.model.reasons import Code
from webhook.kube.objects import keys
from webhook.kube.pod.pods import FIELD_MANAGER
from webhook.kube.registration.admission_policy import (
    EXEMPT_LABEL,
    admission_policy,
    core_rule,
    own_expression,
    policy_binding,
    trusted_expression,
)
from webhook.kube.registration.device_guards import device_guards
from webhook.kube.registration.registration import ABSENT, claim_rule, gpu_pod_expression, metadata_value, quoted
from webhook.kube.registration.size_guards import size_guards

HELD_BINDINGS: Final = "fairgate-held-bindings"
HELD_NODE_NAMES: Final = "fairgate-held-node-names"
HELD_DEVICES: Final = "fairgate-held-devices"
PARAMETRIC: Final = (HELD_BINDINGS, HELD_NODE_NAMES, HELD_DEVICES)
"""They read HeldNodes as their parameter."""

PARAM_REF: Final = {"selector": {}, "parameterNotFoundAction": "Allow"}
"""Without an object of the kind no node is held; only the evictor and administrators may create one. By name, the API
server would look in etcd for a missing one at each pod and each binding (getParamDirectly in its policy_dispatcher.go,
1.37). A selector is answered from its watch."""

_Json = dict[str, Any]

_LABELS: Final = "namespaceObject.metadata.labels"
_IS_MET: Final = (
    f'(r.operator == "Exists" ? r.key in {_LABELS} : r.operator == "DoesNotExist" ? !(r.key in {_LABELS}) : '
    f'r.operator == "In" ? r.key in {_LABELS} && {_LABELS}[r.key] in r.values : '
    f"!(r.key in {_LABELS} && {_LABELS}[r.key] in r.values))"
)
_OF_A_TEAM: Final = (
    f"!(request.namespace in [{quoted(keys.OWN_NAMESPACE)}, {quoted(keys.SYSTEM_NAMESPACE)}]) && !{EXEMPT_LABEL} && "
    "!params.spec.exemptPatterns.exists(p, request.namespace.matches(p)) && "
    "(request.namespace in params.spec.namespaces || "
    "params.spec.namespacePatterns.exists(p, request.namespace.matches(p)) || "
    f"(has({_LABELS}) && params.spec.namespaceSelectors.exists(s, s.all(r, {_IS_MET}))))"
)
_KEPT: Final = "keeps its room for pods that wait"


def held_guards(trusted_users: Iterable[str]) -> list[_Json]:
    """Return the guards: of bindings, of pods that name their node, and of devices that a claim gets there."""
    return [_bindings(), _node_names(trusted_users), _devices()]


def _bindings() -> _Json:
    node = "dyn(object).target.name"
    return _held_policy(
        HELD_BINDINGS,
        rules=[core_rule(["bindings", "pods/binding"], "CREATE")],
        held=f"{node} in params.spec.nodes",
        allowed=f"(has(dyn(object).metadata.uid) && dyn(object).metadata.uid in params.spec.nodes[{node}])",
        message=f'"node " + {node} + " {_KEPT}, and this pod is none of them ({Code.HELD_ROOM})"',
    )


def _node_names(trusted_users: Iterable[str]) -> _Json:
    """Kubelets report their static pods, and users who may patch nodes could remove the taint as well."""
    is_admin = 'authorizer.group("").resource("nodes").check("patch").allowed()'
    return _held_policy(
        HELD_NODE_NAMES,
        rules=[core_rule(["pods"], "CREATE")],
        held="has(object.spec.nodeName) && object.spec.nodeName in params.spec.nodes",
        allowed=trusted_expression(trusted_users, f'"system:nodes" in request.userInfo.groups || {is_admin}'),
        message=f'"node " + object.spec.nodeName + " {_KEPT}: create the pod without nodeName, or later '
        f'({Code.HELD_ROOM})"',
    )


def _devices() -> _Json:
    """kube-scheduler allocates a claim's devices before it binds the pod: a refused pod would still hold them."""
    nodes = (
        "dyn(object).status.allocation.nodeSelector.nodeSelectorTerms.exists(t, has(t.matchFields) && "
        "t.matchFields.exists(f, has(f.values) && f.values.exists(n, n in params.spec.nodes{also})))"
    )
    allocated = "has({root}.status) && has({root}.status.allocation)"
    is_new = f"{allocated.format(root='dyn(object)')} && !({allocated.format(root='dyn(oldObject)')})"
    has_none = "!has(dyn(object).status.reservedFor)"
    of_others = "dyn(object).status.reservedFor.exists(r, !(r.uid in params.spec.nodes[n]))"
    return _held_policy(
        HELD_DEVICES,
        rules=[claim_rule()],
        held=f"{is_new} && has(dyn(object).status.allocation.nodeSelector) && {nodes.format(also='')}",
        allowed=f"!({nodes.format(also=f' && ({has_none} || {of_others})')})",
        message=f'"the node of these devices {_KEPT}, and this claim is for none of them ({Code.HELD_ROOM})"',
    )


def _held_policy(name: str, *, rules: list[_Json], held: str, allowed: str, message: str) -> _Json:
    made = admission_policy(
        name,
        rules=rules,
        conditions={"is-held": held},
        # a match condition cannot read the namespace
        validations=[{"expression": f"!({_OF_A_TEAM}) || {allowed}", "messageExpression": message}],
    )
    made["spec"] |= {
        "failurePolicy": "Ignore",
        "paramKind": {"apiVersion": keys.OWN_API, "kind": keys.HELD_NODES_KIND},
    }
    return made


# ValidatingAdmissionPolicies and bindings with which the API server protects objects, also while Fairgate is down.
#
# They allow users by RBAC permission, not by name: a user who may write TeamLedgers is Fairgate, and one who may patch
# nodes could also remove a taint. The API server evaluates them itself, without a call to Fairgate.


LABELS: Final = "fairgate-labels"
HELD_ROOM: Final = "fairgate-held-room"
TENANCY: Final = "fairgate-tenancy"
FORGED: Final = "fairgate-forged"
GRACE: Final = "fairgate-grace"
ASSIGN_VERB: Final = "assign"
"""A user who may `assign` `namespaces` in our API group may set a namespace's team, or make it exempt."""

TENANCY_LABELS: Final = (keys.EXEMPT, ADMIN_ACCESS)
"""Labels of namespaces whose pods are exempt, or whose claims may use admin access, which is not counted."""

_ACTIONS: Final = {
    Enforcement.ENFORCE: ("Deny",),
    Enforcement.WARN: ("Warn", "Audit"),
    Enforcement.SHADOW: ("Audit",),
    Enforcement.OFF: ("Audit",),
}


def guards(policy: Policy, *, trusted_users: Iterable[str] = (), excluding: Iterable[str] = ()) -> list[_Json]:
    """Return the guards for a policy, each with its binding. `trusted_users` have the same permissions as Fairgate.

    `excluding` are labels by which the control plane excludes namespaces from webhooks (`excluding_labels`).
    """
    actions = _ACTIONS[policy.enforce]
    policies = [
        _labels(trusted_users),
        _held_room(trusted_users),
        _tenancy({*TENANCY_LABELS, *_selecting_labels(policy), *excluding}, trusted_users),
        _forged(policy, trusted_users),
        _grace(policy, trusted_users),
        *size_guards(policy, trusted_users),
    ]
    bound = [part for guard in policies for part in (guard, policy_binding(guard, actions))]
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
    """Only Fairgate may change a pod's team, tier or decision, through any subresource, or remove its gate.

    Of a pod that it decided on, its user may not change the minimum of replicas either.

    A gate alone may also be removed by users who may delete this guard's binding, when no Fairgate runs: that right
    gives them nothing that they could not do in two steps. The evictor, which may have a user of its own, alone says
    which pods do not use their GPUs.
    """
    guarded = [(at, key) for at, names in _GUARDED for key in names]
    changed = ", ".join(
        f'({metadata_value("object", at, key)} != {metadata_value("oldObject", at, key)} ? "{at[:-1]} {key}" : "")'
        for at, key in guarded
    )
    fixed = ", ".join(f'({_CHANGES_FIXED} ? "annotation {key}" : "")' for key in keys.FIXED_ANNOTATIONS)
    ungated = f'({_UNGATED} ? "scheduling gate {keys.QUEUE_GATE}" : "")'
    manager = f"has(request.options.fieldManager) && request.options.fieldManager == {quoted(FIELD_MANAGER)}"
    changes = changed_keys_expression(_GUARDED)
    is_admin = (
        f'authorizer.group({quoted(keys.REGISTRATION_GROUP)}).resource("validatingadmissionpolicybindings")'
        f'.name({quoted(LABELS)}).check("delete").allowed()'
    )
    may_ungate = f"({_UNGATED} && !({changes} || ({_CHANGES_FIXED})) && {is_admin})"
    may_mark = f"({_IS_EVICTOR} && !({changed_keys_expression(_DECIDED)} || ({_CHANGES_FIXED}) || ({_UNGATED})))"
    # An expression has a budget for two questions to the authorizer.
    return _policy(
        LABELS,
        rules=[core_rule(["pods", "pods/status"], "UPDATE"), core_rule(["bindings", "pods/binding"], "CREATE")],
        conditions={"changes-fairgate-keys": f"{changes} || ({_CHANGES_FIXED}) || ({_UNGATED})"},
        allowed=trusted_expression(trusted_users, f"({manager} ? {own_expression()} || {may_mark} : {may_ungate})"),
        message=f'"only Fairgate may change " + [{changed}, {fixed}, {ungated}].filter(t, t != "").join(", ") + '
        f'": leave it as it is ({Code.PROTECTED_KEY_CHANGED})"',
    )


def _held_room(trusted_users: Iterable[str]) -> _Json:
    """Only the evictor may let a pod tolerate the taint of nodes that are reserved for other pods."""
    held = f"has(t.key) && t.key == {quoted(keys.HELD)}"
    old = "oldObject != null && has(oldObject.spec.tolerations) && oldObject.spec.tolerations.exists(o, o == t)"
    return _policy(
        HELD_ROOM,
        rules=[core_rule(["pods"], "CREATE", "UPDATE")],
        conditions={
            "tolerates-held-room": f"has(object.spec.tolerations) && "
            f"object.spec.tolerations.exists(t, {held} && !({old}))"
        },
        allowed=trusted_expression(trusted_users, _IS_EVICTOR),
        message=f'"only Fairgate may add a toleration of {keys.HELD}, to pods that it reserves the node for: '
        f'remove the toleration ({Code.HELD_ROOM})"',
    )


def _tenancy(labels: Iterable[str], trusted_users: Iterable[str]) -> _Json:
    """Only users with the permission may move a namespace to another team, or exempt it, by these labels."""
    own = (("labels", tuple(sorted(labels))),)
    namespaces = ["namespaces", "namespaces/status", "namespaces/finalize"]
    may_assign = f'authorizer.group({quoted(keys.OWN_GROUP)}).resource("namespaces").check({quoted(ASSIGN_VERB)})'
    return _policy(
        TENANCY,
        rules=[core_rule(namespaces, "CREATE", "UPDATE", scope="Cluster")],
        conditions={"changes-tenancy": changed_keys_expression(own)},
        allowed=trusted_expression(trusted_users, f"{may_assign}.allowed()"),
        message=f'"labels {", ".join(own[0][1])} set which team a namespace belongs to, or that what its pods use '
        f"is not counted or not reviewed: changing them requires permission to {ASSIGN_VERB} namespaces of "
        f'{keys.OWN_GROUP} ({Code.TENANCY_CHANGED})"',
    )


def _forged(policy: Policy, trusted_users: Iterable[str]) -> _Json:
    """Tenants may not create a pod without GPUs that carries Fairgate's keys; the webhook checks pods with GPUs."""
    return _policy(
        FORGED,
        of=policy,
        rules=[core_rule(["pods"], "CREATE")],
        conditions={
            "carries-fairgate-keys": has_keys_expression(_GUARDED),
            "asks-for-no-gpu": f"!({gpu_pod_expression(policy)})",
        },
        allowed=trusted_expression(trusted_users, EXEMPT_LABEL),
        message=f'"only pods with GPUs may have {", ".join(keys.GUARDED_LABELS + keys.GUARDED_ANNOTATIONS)}: '
        f'remove them ({Code.PROTECTED_KEY_CHANGED})"',
    )


def _grace(policy: Policy, trusted_users: Iterable[str]) -> _Json:
    """A pod may not keep its GPUs by being deleted or evicted with a long grace period.

    Users who may patch nodes are allowed: a drain needs it. An Eviction does not contain its pod, so evictions of all
    pods are checked.
    """
    longest, evicted = policy.defaults.maximum_grace_seconds, "dyn(object).deleteOptions"
    requested = (
        'request.operation == "DELETE" ? '
        "(has(request.options.gracePeriodSeconds) ? request.options.gracePeriodSeconds : 0) : "
        f"(has({evicted}) && has({evicted}.gracePeriodSeconds) ? {evicted}.gracePeriodSeconds : 0)"
    )
    of_gpus = gpu_pod_expression(policy, spec="dyn(oldObject).spec")
    return _policy(
        GRACE,
        of=policy,
        rules=[core_rule(["pods"], "DELETE"), core_rule(["pods/eviction"], "CREATE")],
        conditions={
            "asks-for-long": f"({requested}) > {longest}",
            "may-hold-gpus": f'request.operation == "CREATE" || {of_gpus}',
        },
        allowed=trusted_expression(trusted_users, f"{EXEMPT_LABEL} || {_IS_EVICTOR}"),
        message=f'"the grace period of a pod with GPUs is at most {longest} seconds: '
        f'set a shorter one, or none ({Code.GRACE_PERIOD_TOO_LONG})"',
    )


def changed_keys_expression(guarded: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Return a CEL expression: one of these labels or annotations is changed, or set on creation."""
    return " || ".join(
        f"{metadata_value('object', at, key)} != {metadata_value('oldObject', at, key)}"
        for at, names in guarded
        for key in names
    )


def has_keys_expression(guarded: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Return a CEL expression: the object has one of these labels or annotations."""
    return " || ".join(
        f"(has(object.metadata.{at}) && {json.dumps([*names])}.exists(k, k in object.metadata.{at}))"
        for at, names in guarded
    )


_GATED: Final = (
    "has(dyn({pod}).spec.schedulingGates) && "
    f"dyn({{pod}}).spec.schedulingGates.exists(g, g.name == {quoted(keys.QUEUE_GATE)})"
)
_UNGATED: Final = (
    f'request.operation == "UPDATE" && {_GATED.format(pod="oldObject")} && !({_GATED.format(pod="object")})'
)
_GUARDED: Final = (("labels", keys.GUARDED_LABELS), ("annotations", keys.GUARDED_ANNOTATIONS))
_DECIDED: Final = (("labels", keys.GUARDED_LABELS), ("annotations", (keys.DECISION,)))
_IS_EVICTOR: Final = 'authorizer.group("").resource("nodes").check("patch").allowed()'
"""The user may patch nodes, as the evictor and users who drain nodes do."""
_CHANGES_FIXED: Final = (
    f'request.operation == "UPDATE" && {metadata_value("oldObject", "labels", keys.TEAM)} != {quoted(ABSENT)}'
    f" && ({changed_keys_expression((('annotations', keys.FIXED_ANNOTATIONS),))})"
)


def _selecting_labels(policy: Policy) -> Iterator[str]:
    for team in policy.teams:
        if team.namespace_selector is not None:
            yield from (requirement.key for requirement in team.namespace_selector.requirements)


def _policy(name: str, *, allowed: str, message: str, **parts: Any) -> _Json:  # noqa: ANN401 - of admission_policy
    return admission_policy(name, validations=[{"expression": allowed, "messageExpression": message}], **parts)
