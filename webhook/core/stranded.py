"""Pods that wait for nodes that will not have them, while others would.

The gate binds a pod to the best few nodes by name. If all of those went, were closed or filled up before it was
scheduled, it waits for ever beside free GPUs: only a new pod gets a new choice.
"""

from dataclasses import replace
from typing import Final

from webhook.core.fleet import Fleet
from webhook.core.selector import Constraints, NodeTerm, Operator
from webhook.core.tenant import Tenant

WAIT_SECONDS: Final = 60
"""How long a pod may wait before it counts as stranded: a node that restarts is back by then, or its room is."""


def is_stranded(tenant: Tenant, fleet: Fleet, *, now: int, held: int = 0) -> bool:
    """Tell whether a pod has waited long enough for nodes that have no room, while another one has.

    `held` are nodes whose room is kept for others.
    """
    if tenant.is_gated or tenant.pod.node is not None or now < tenant.pod.created + WAIT_SECONDS:
        return False
    demand, own = tenant.pod.demand, tenant.constraints
    loose = _loosened(own, frozenset(tenant.chosen))
    if loose == own or fleet.with_room(demand, fleet.matching(own) & fleet.open_bits):
        return False
    return bool(fleet.with_room(demand, fleet.matching(loose) & fleet.open_bits & ~held))


def _loosened(constraints: Constraints, chosen: frozenset[str]) -> Constraints:
    """Take the gate's choice of nodes out of a pod's constraints; what its user wrote stays."""
    if constraints.terms is None:
        return constraints
    terms = tuple(dict.fromkeys(_without_choice(term, chosen) for term in constraints.terms))
    return replace(constraints, terms=None if NodeTerm() in terms else terms)


def _without_choice(term: NodeTerm, chosen: frozenset[str]) -> NodeTerm:
    fields = tuple([each for each in term.fields if each.operator is not Operator.IN or not chosen >= set(each.values)])
    return NodeTerm(term.labels, fields)
