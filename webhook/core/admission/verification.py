"""The validating step, the commit point: judge the final object again, and check that the mutation is intact.

It must not assume that the mutating step ran: the webhook may have been skipped, another one may have changed the pod
later, the world may have changed. A lost race is a Retry, which clients repeat automatically; an altered pod is
refused.
"""

from collections.abc import Iterator

from webhook.core.admission.assessment import Assessment, assess
from webhook.core.admission.elsewhere import demanded_model, model_requirements
from webhook.core.admission.pools import WHOLE_CLUSTER
from webhook.core.model import decision_annotation as marks
from webhook.core.model.amount import format_gpus
from webhook.core.model.decision import Admit, Charge, Decision, Deny, Retry, Steering
from webhook.core.model.decision_annotation import DecisionAnnotation
from webhook.core.model.names import ANY_MODEL, GpuModel, NodeName
from webhook.core.model.pod import Pod, Requester
from webhook.core.model.policy import Mode, Pool
from webhook.core.model.reason import Code, Reason
from webhook.core.model.selector import NODE_NAME_FIELD, NodeTerm, Operator, Requirement
from webhook.core.model.tier import TIERS, Tier
from webhook.core.peers.topology_filter import TopologyRequest, evaluate_topology
from webhook.core.world.world import World

_MODES = frozenset(mode.value for mode in Mode)

_CHARGED = Reason(Code.ALREADY_DECIDED, "this pod was admitted and charged before")


def verify(pod: Pod, requester: Requester, world: World) -> Decision:
    """Return the decision on the final object; an Admit has the charge and, as its first node, where to reserve."""
    return confirm(assess(pod, requester, world), world)


def confirm(assessed: Assessment, world: World) -> Decision:
    """Return the decision on an assessed pod as it will be stored.

    A pod that is charged already is admitted again: if the response got lost the API server repeats the request, and a
    pod must not be refused for the room that it holds itself.
    """
    pod = assessed.pod
    charged = world.charge_of(pod.uid)
    if charged is not None and assessed.is_counted and charged.gpus == pod.demand.gpus:
        return Admit(charged, pod.demand, Steering(Mode.OFF), _CHARGED, world.policy.hash)
    if assessed.early_decision is not None:
        return assessed.early_decision
    if assessed.broken:
        return Deny(assessed.broken)
    if pod.mark is None and pod.team_label is None:
        return Retry(Reason(Code.MUTATION_MISSING, "the pod did not pass Fairgate's mutating webhook: try again"))
    mark = marks.read(pod.mark or "")
    if mark is None:
        return Deny((_altered("annotation fairgate.dev/decision is not what Fairgate wrote"),))
    if changed := _changed_meanwhile(pod, mark, world):
        return Retry(Reason(Code.RACE_LOST, f"{changed} changed while the pod was being created: try again"))
    if altered := tuple(_alterations(assessed, mark, world)):
        return Deny(altered)
    return _commit(assessed, mark, world)


def _changed_meanwhile(pod: Pod, mark: DecisionAnnotation, world: World) -> str | None:
    if mark.policy != world.policy.hash:
        return "the policy"
    is_as_counted = mark.gpus == format_gpus(pod.demand.gpus) and mark.claims == pod.demand.claims
    return "a claim of the pod" if pod.claims and not is_as_counted and mark.demand == pod.demand.devices else None


def _commit(assessed: Assessment, mark: DecisionAnnotation, world: World) -> Admit | Deny | Retry:
    pod, team = assessed.pod, assessed.team
    fits, has_reservation, nodes = world.fleet.fits, world.tentative.has, _topology_allowed(pod, mark, world)
    node = next((name for name in nodes if fits(name, pod.demand) or has_reservation(name, pod.demand)), None)
    if node is None and _is_required(mark):
        why = "filled up meanwhile" if nodes else "no longer meet the pod's topology rules"
        return Retry(Reason(Code.RACE_LOST, f"the chosen nodes {why} ({', '.join(mark.nodes)}): try again"))
    model = _model(mark, node, world) if team.models else None
    if model is not None and (refusal := assessed.model_refusal(pod.demand, model)):
        return Deny((refusal,))
    tier = TIERS[pod.tier_label or ""]
    if tier is Tier.GUARANTEED and not assessed.has_guaranteed_room(model):
        text = f"the last of team {team.name}'s guaranteed share went to another pod meanwhile: try again"
        return Retry(Reason(Code.RACE_LOST, text))
    return Admit(
        charge=Charge(team.name, tier, pod.demand.gpus, model=model, user=assessed.user),
        demand=pod.demand,
        steering=Steering(Mode(mark.mode), (node,) if node is not None else (), mark.pool),
        reason=Reason(Code(mark.code), f"charged to team {team.name}"),
        policy_hash=mark.policy,
        warnings=assessed.warnings,
    )


def _topology_allowed(pod: Pod, mark: DecisionAnnotation, world: World) -> tuple[NodeName, ...]:
    """Return the decided nodes without those where the pod would break a required topology rule, its own or others'.

    Only committed pods count: tentative ones may never be created. Preferred nodes are not checked, kube-scheduler may
    ignore them.
    """
    if not (_is_required(mark) and (pod.has_required_topology or world.pod_counts.against(pod.namespace, pod.labels))):
        return mark.nodes
    if world.pod_counts.are_costly(pod.namespace, pod.topology):
        return mark.nodes
    constraints, tentative = pod.constraints.without_choice(mark.nodes), tuple(world.tentative.placed(pod.namespace))
    request = TopologyRequest(pod.namespace, pod.labels, pod.topology, constraints, tentative)
    allowed = evaluate_topology(request, world.fleet, world.pod_counts).allowed
    return tuple([name for name in mark.nodes if world.fleet.bit(name) & allowed])


def _model(mark: DecisionAnnotation, node: NodeName | None, world: World) -> GpuModel | None:
    known = world.fleet.get(node) if node is not None else None
    return known.model if known is not None else mark.model


def _is_required(mark: DecisionAnnotation) -> bool:
    return bool(mark.nodes) and mark.mode in {Mode.AUTO, Mode.REQUIRE}


def _alterations(assessed: Assessment, mark: DecisionAnnotation, world: World) -> Iterator[Reason]:
    """Yield what was changed after the mutating step, or was not written by it."""
    pod, team, user = assessed.pod, assessed.team, assessed.user
    if pod.team_label != team.name:
        yield _altered(f"label fairgate.dev/team is {pod.team_label!r}, the pod's team is {team.name}")
    if pod.tier_label not in TIERS:
        yield _altered(f"label fairgate.dev/tier is {pod.tier_label!r}, not guaranteed or preemptible")
    if mark.user != user:
        yield _altered(f"its decision names user {mark.user}, the pod's user is {user}")
    if mark.demand != pod.demand.devices or mark.gpus != format_gpus(pod.demand.gpus):
        yield _altered("its GPU request is not the one that was decided on")
    if mark.mode not in _MODES or mark.code not in (Code.WITHIN_SHARE, Code.BORROWS, Code.BORROWS_BY_CHOICE):
        yield _altered("annotation fairgate.dev/decision names an unknown mode or code")
        return
    if mark.mode != world.policy.placement.mode and not (
        mark.mode == Mode.PREFER and _may_be_preferred(pod, mark, world)
    ):
        yield _altered(f"its decision names mode {mark.mode}, policy says {world.policy.placement.mode}")
    yield from _pool_alterations(assessed, mark)
    if team.models and not _is_on_model(pod, mark, world):
        yield _altered(f"it may run on other GPU models than {mark.model}, which its decision is charged to")
    if _is_required(mark) and not _is_bound_to(pod, mark):
        yield _altered("its node affinity no longer names the nodes that were decided on")


def _may_be_preferred(pod: Pod, mark: DecisionAnnotation, world: World) -> bool:
    """Whether required nodes would have become preferred ones for this pod (see `mode_for`)."""
    return (
        pod.has_open_constraints
        or bool(pod.topology)
        or any(pool.is_autoscaled and mark.pool in (None, pool.name) for pool in world.policy.pools)
    )


def _pool_alterations(assessed: Assessment, mark: DecisionAnnotation) -> Iterator[Reason]:
    pod, allowed = assessed.pod, assessed.pools
    if allowed.refusal is not None:
        yield allowed.refusal
        return
    if mark.pool is None:
        if WHOLE_CLUSTER not in allowed.allowed and not _is_in_any(pod, allowed.allowed):
            names = ", ".join(pool.name for pool in allowed.allowed)
            yield _altered(f"its node selector and affinity allow nodes outside of the pools open to it ({names})")
        return
    pool = next((pool for pool in allowed.allowed if pool.name == mark.pool), None)
    if pool is None:
        yield _altered(f"its decision names pool {mark.pool}, which is not open to it")
    elif not _has_pool_terms(pod, pool):
        yield _altered(f"the node selector, affinity or tolerations of pool {pool.name} were removed")


def _has_pool_terms(pod: Pod, pool: Pool) -> bool:
    own = pod.constraints
    if not (set(pool.node_selector) <= set(own.node_selector) and set(pool.tolerations) <= set(own.tolerations)):
        return False
    return not pool.affinity or all(set(pool.affinity) <= set(term.labels) for term in _alternatives(pod))


def _is_on_model(pod: Pod, mark: DecisionAnnotation, world: World) -> bool:
    """Whether the pod can only run on the charged model: other models have limits of their own."""
    if _is_required(mark):
        nodes = [node for name in mark.nodes if (node := world.fleet.get(name)) is not None]
        return all(node.model == mark.model for node in nodes)
    if mark.model is None or mark.model == ANY_MODEL:
        return mark.model is not None
    labels = [label for model, label in world.fleet.by_model() if model == mark.model]
    if not labels:
        return demanded_model(pod.constraints, world) == mark.model
    options = [set(model_requirements(mark.model, label, world)) for label in labels]
    return all(any(option <= set(term.labels) for option in options) for term in _alternatives(pod))


def _is_in_any(pod: Pod, pools: tuple[Pool, ...]) -> bool:
    """Whether every node affinity term of the pod includes the selector and affinity of one of the pools."""
    options = [set(_as_requirements(pool.node_selector)).union(pool.affinity) for pool in pools]
    own = set(_as_requirements(pod.constraints.node_selector))
    offered = [own.union(term.labels) for term in _alternatives(pod)]
    return all(any(option <= alternative for option in options) for alternative in offered)


def _alternatives(pod: Pod) -> list[NodeTerm]:
    """Return the terms of which a node must meet one; an empty term matches no node, no terms match every node."""
    terms = pod.constraints.terms
    return [NodeTerm()] if terms is None else [term for term in terms if term != NodeTerm()]


def _as_requirements(selector: tuple[tuple[str, str], ...]) -> Iterator[Requirement]:
    return (Requirement(key, Operator.IN, (value,)) for key, value in selector)


def _is_bound_to(pod: Pod, mark: DecisionAnnotation) -> bool:
    """Whether every term of the node affinity names one of the decided nodes."""
    nodes = frozenset(mark.nodes)
    return bool(pod.constraints.terms) and all(
        any(
            r.key == NODE_NAME_FIELD and r.operator is Operator.IN and r.values and nodes.issuperset(r.values)
            for r in term.fields
        )
        for term in pod.constraints.terms or ()
    )


def _altered(text: str) -> Reason:
    return Reason(Code.MUTATION_ALTERED, f"{text}: something changed the pod after Fairgate's mutating webhook")
