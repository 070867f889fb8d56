"""The validating step, the commit point: judge the final object again, and check that the mutation is intact.

It must not assume that the mutating step ran: the webhook may have been skipped, another one may have changed the pod
later, the world may have changed. A lost race is a Retry, which clients repeat automatically; an altered pod is
refused.
"""

from collections.abc import Iterator

from webhook.core.admission.assessment import Assessment, assess
from webhook.core.admission.pools import WHOLE_CLUSTER
from webhook.core.admission.queueing import confirm_queued, refuse_at_commit, refuse_gate
from webhook.core.admission.unplaced import demanded_model, model_requirements
from webhook.core.model import decision
from webhook.core.model.amounts import ANY_MODEL, GpuModel, NodeName, format_gpus
from webhook.core.model.constraints import NODE_NAME_FIELD, TIERS, NodeTerm, Operator, Requirement, Tier
from webhook.core.model.decision import Admit, Charge, Decision, DecisionAnnotation, Deny, NodeChoice, Retry
from webhook.core.model.pod import Pod, Requester
from webhook.core.model.policy import Mode, Pool
from webhook.core.model.reasons import Code, Reason, Statement
from webhook.core.placement.topology_rules import TopologyRequest, evaluate_topology
from webhook.core.world.world import World

_MODES = frozenset(mode.value for mode in Mode)
_REQUIRED_MODES = frozenset((Mode.AUTO.value, Mode.REQUIRE.value))
_CODES = frozenset(code.value for code in (Code.WITHIN_SHARE, Code.BORROWS, Code.BORROWS_BY_CHOICE))

_NOT_OURS = Statement("annotation fairgate.dev/decision is not what Fairgate wrote")
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
        return Admit(charged, pod.demand, NodeChoice(Mode.OFF), _CHARGED, world.policy.hash)
    if (early := assessed.early_decision) is not None or pod.is_queued:
        return (refuse_gate(early) if pod.is_queued else early) if early else confirm_queued(assessed, world)
    if assessed.broken:
        return refuse_at_commit(assessed, assessed.broken, world)
    if pod.decision_annotation is None and pod.team_label is None:
        return Retry(Reason(Code.MUTATION_MISSING, "the pod did not pass Fairgate's mutating webhook: try again"))
    annotation = decision.read(pod.decision_annotation or "", pod.constraints)
    if annotation is None:
        return Deny((_altered(_NOT_OURS),))
    if changed := _changed_meanwhile(pod, annotation, world):
        words = "{what} changed while the pod was being created: try again"
        return Retry(Reason(Code.RACE_LOST, words, {"what": changed}))
    if altered := tuple(_alterations(assessed, annotation, world)):
        return Deny(altered)
    return _commit(assessed, annotation, world)


def _changed_meanwhile(pod: Pod, annotation: DecisionAnnotation, world: World) -> str | None:
    if annotation.policy != world.policy.hash:
        return "the policy"
    if (
        world.is_live
        and not world.autoscalers
        and annotation.mode == Mode.PREFER != world.policy.placement.mode
        and not _may_be_preferred(pod, annotation, world)
        and any(pool.is_autoscaled is None for pool in _named(annotation, world))
    ):
        return "what is known of autoscalers"  # another replica found one
    is_as_counted = annotation.gpus == format_gpus(pod.demand.gpus) and annotation.claims == pod.demand.claims
    return (
        "a claim of the pod" if pod.claims and not is_as_counted and annotation.demand == pod.demand.devices else None
    )


def _commit(assessed: Assessment, annotation: DecisionAnnotation, world: World) -> Admit | Deny | Retry:
    pod, team = assessed.pod, assessed.team
    fits, has_reservation, nodes = world.fleet.fits, world.tentative.has, _topology_allowed(pod, annotation, world)
    node = next((name for name in nodes if fits(name, pod.demand) or has_reservation(name, pod.demand)), None)
    if node is None and _is_required(annotation):
        words = (
            "the chosen nodes filled up meanwhile ({nodes}): try again"
            if nodes
            else "the chosen nodes no longer meet the pod's topology rules ({nodes}): try again"
        )
        return Retry(Reason(Code.RACE_LOST, words, {"nodes": annotation.nodes}))
    model = _model(annotation, node, world) if team.has_model_shares else None
    if model is not None and (refusal := assessed.model_refusal(pod.demand, model)):
        return refuse_at_commit(assessed, (refusal,), world)
    tier = TIERS[pod.tier_label or ""]
    if tier is Tier.GUARANTEED and not assessed.has_guaranteed_room(model):
        words = "the last of team {team}'s guaranteed share went to another pod meanwhile: try again"
        return Retry(Reason(Code.RACE_LOST, words, {"team": team.name}))
    return Admit(
        charge=Charge(team.name, tier, pod.demand.gpus, model=model, user=assessed.user),
        demand=pod.demand,
        node_choice=NodeChoice(Mode(annotation.mode), (node,) if node is not None else (), annotation.pool),
        reason=Reason(Code(annotation.code), "charged to team {team}", {"team": team.name}),
        policy_hash=annotation.policy,
        warnings=assessed.warnings,
    )


def _topology_allowed(pod: Pod, annotation: DecisionAnnotation, world: World) -> tuple[NodeName, ...]:
    """Return the decided nodes without those where the pod would break a required topology rule, its own or others'.

    Only committed pods count: tentative ones may never be created. Preferred nodes are not checked, kube-scheduler may
    ignore them.
    """
    if not (
        _is_required(annotation) and (pod.has_required_topology or world.pod_counts.against(pod.namespace, pod.labels))
    ):
        return annotation.nodes
    if world.pod_counts.are_costly(pod.namespace, pod.topology):
        return annotation.nodes
    constraints, tentative = (
        pod.constraints.without_choice(annotation.nodes),
        tuple(world.tentative.placed(pod.namespace)),
    )
    request = TopologyRequest(pod.namespace, pod.labels, pod.topology, constraints, tentative)
    allowed = evaluate_topology(request, world.fleet, world.pod_counts).allowed
    return tuple([name for name in annotation.nodes if world.fleet.bit(name) & allowed])


def _model(annotation: DecisionAnnotation, node: NodeName | None, world: World) -> GpuModel | None:
    known = world.fleet.get(node) if node is not None else None
    return known.model if known is not None else annotation.model


def _is_required(annotation: DecisionAnnotation) -> bool:
    return bool(annotation.nodes) and annotation.mode in _REQUIRED_MODES


def _alterations(assessed: Assessment, annotation: DecisionAnnotation, world: World) -> Iterator[Reason]:
    """Yield what was changed after the mutating step, or was not written by it."""
    pod, team, user = assessed.pod, assessed.team, assessed.user
    if pod.team_label != team.name:
        facts = {"label": pod.team_label or "", "team": team.name}
        yield _altered(Statement("label fairgate.dev/team is {label:quoted}, the pod's team is {team}", facts))
    if pod.tier_label not in TIERS:
        words = "label fairgate.dev/tier is {label:quoted}, not guaranteed or preemptible"
        yield _altered(Statement(words, {"label": pod.tier_label or ""}))
    if annotation.user != user:
        words = "its decision names user {decided}, the pod's user is {user}"
        yield _altered(Statement(words, {"decided": annotation.user or "none", "user": user or "not known"}))
    if annotation.demand != pod.demand.devices or annotation.gpus != format_gpus(pod.demand.gpus):
        yield _altered(Statement("its GPU request is not the one that was decided on"))
    if annotation.mode not in _MODES or annotation.code not in _CODES:
        yield _altered(Statement("annotation fairgate.dev/decision names an unknown mode or code"))
        return
    rules = world.policy.placement
    # a server of an older version, beside this one during an upgrade, decides on pods of PodGroups as on others
    is_usual = annotation.mode in (rules.mode_of(pod.gang), rules.mode)
    if not is_usual and not (annotation.mode == Mode.PREFER and _may_be_preferred(pod, annotation, world)):
        facts = {"mode": annotation.mode, "policy": str(rules.mode_of(pod.gang))}
        yield _altered(Statement("its decision names mode {mode}, policy says {policy}", facts))
    yield from _pool_alterations(assessed, annotation)
    if team.has_model_shares and not _is_on_model(pod, annotation, world):
        words = "it may run on other GPU models than {model}, which its decision is charged to"
        yield _altered(Statement(words, {"model": annotation.model or "none"}))
    if (annotation.listed or _is_required(annotation)) and not _is_bound_to(pod, annotation):
        yield _altered(Statement("its node affinity no longer names the nodes that were decided on"))


def _may_be_preferred(pod: Pod, annotation: DecisionAnnotation, world: World) -> bool:
    """Whether required nodes would have become preferred ones for this pod (see `mode_for`)."""
    return (
        pod.has_open_constraints
        or bool(pod.topology)
        or any(
            pool.is_autoscaled or (world.autoscalers and pool.is_autoscaled is None)
            for pool in _named(annotation, world)
        )
    )


def _named(annotation: DecisionAnnotation, world: World) -> Iterator[Pool]:
    """Yield the pools that a decision may be about."""
    pools = world.policy.pools or (WHOLE_CLUSTER,)
    return (pool for pool in pools if annotation.pool in (None, pool.name))


def _pool_alterations(assessed: Assessment, annotation: DecisionAnnotation) -> Iterator[Reason]:
    pod, allowed = assessed.pod, assessed.pools
    if allowed.refusal is not None:
        yield allowed.refusal
        return
    if annotation.pool is None:
        if WHOLE_CLUSTER not in allowed.allowed and not _is_in_any(pod, allowed.allowed):
            words = "its node selector and affinity allow nodes outside of the pools open to it ({pools})"
            yield _altered(Statement(words, {"pools": tuple([pool.name for pool in allowed.allowed])}))
        return
    pool = next((pool for pool in allowed.allowed if pool.name == annotation.pool), None)
    if pool is None:
        words = "its decision names pool {pool}, which is not open to it"
        yield _altered(Statement(words, {"pool": annotation.pool}))
    elif not _has_pool_terms(pod, pool):
        words = "the node selector, affinity or tolerations of pool {pool} were removed"
        yield _altered(Statement(words, {"pool": pool.name}))


def _has_pool_terms(pod: Pod, pool: Pool) -> bool:
    own = pod.constraints
    if not (
        set(own.node_selector).issuperset(pool.node_selector) and set(own.tolerations).issuperset(pool.tolerations)
    ):
        return False
    return not pool.affinity or all(set(pool.affinity) <= set(term.labels) for term in _alternatives(pod))


def _is_on_model(pod: Pod, annotation: DecisionAnnotation, world: World) -> bool:
    """Whether the pod can only run on the charged model: other models have limits of their own."""
    if _is_required(annotation):
        nodes = [node for name in annotation.nodes if (node := world.fleet.get(name)) is not None]
        return all(node.model == annotation.model for node in nodes)
    if annotation.model is None or annotation.model == ANY_MODEL:
        return annotation.model is not None
    labels = [label for model, label in world.fleet.by_model() if model == annotation.model]
    if not labels:
        return demanded_model(pod.constraints, world) == annotation.model
    options = [set(model_requirements(annotation.model, label, world)) for label in labels]
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
    return [NodeTerm()] if terms is None else [term for term in terms if not term.is_empty]


def _as_requirements(selector: tuple[tuple[str, str], ...]) -> Iterator[Requirement]:
    return (Requirement(key, Operator.IN, (value,)) for key, value in selector)


def _is_bound_to(pod: Pod, annotation: DecisionAnnotation) -> bool:
    """Whether every term of the node affinity names one of the decided nodes, and all of them are named."""
    nodes = frozenset(annotation.nodes)
    for term in pod.constraints.terms or ():
        for key, operator, values in term.fields:
            if key == NODE_NAME_FIELD and operator is Operator.IN and values and nodes.issuperset(values):
                break
        else:
            return False
    return bool(pod.constraints.terms) and annotation.listed in (0, len(nodes))


def _altered(what: Statement) -> Reason:
    words = "{what}: something changed the pod after Fairgate's mutating webhook"
    return Reason(Code.MUTATION_ALTERED, words, {"what": what})
