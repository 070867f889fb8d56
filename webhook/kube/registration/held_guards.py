"""Guards of held room: the API server binds no pod of a team to a held node except those that its room is held for.

A toleration without a key matches every taint, and a custom scheduler may ignore taints. These guards check requests
that every scheduler must send. The pods of other namespaces (kube-system, Fairgate's own, exempt ones, those of no
team) pass.

They fail open: where the definition of HeldNodes is missing, pods must still be bound.
"""

from collections.abc import Iterable
from typing import Any, Final

from webhook.core.model.reason import Code
from webhook.kube.objects import keys
from webhook.kube.registration.admission_policy import EXEMPT_LABEL, admission_policy, core_rule, trusted_expression
from webhook.kube.registration.conditions import quoted
from webhook.kube.registration.registration import claim_rule

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
    return _policy(
        HELD_BINDINGS,
        rules=[core_rule(["bindings", "pods/binding"], "CREATE")],
        held=f"{node} in params.spec.nodes",
        allowed=f"(has(dyn(object).metadata.uid) && dyn(object).metadata.uid in params.spec.nodes[{node}])",
        message=f'"node " + {node} + " {_KEPT}, and this pod is none of them ({Code.HELD_ROOM})"',
    )


def _node_names(trusted_users: Iterable[str]) -> _Json:
    """Kubelets report their static pods, and users who may patch nodes could remove the taint as well."""
    is_admin = 'authorizer.group("").resource("nodes").check("patch").allowed()'
    return _policy(
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
    return _policy(
        HELD_DEVICES,
        rules=[claim_rule()],
        held=f"{is_new} && has(dyn(object).status.allocation.nodeSelector) && {nodes.format(also='')}",
        allowed=f"!({nodes.format(also=f' && ({has_none} || {of_others})')})",
        message=f'"the node of these devices {_KEPT}, and this claim is for none of them ({Code.HELD_ROOM})"',
    )


def _policy(name: str, *, rules: list[_Json], held: str, allowed: str, message: str) -> _Json:
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
