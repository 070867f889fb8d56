"""What a user requested, read back from a pod that exists: without what Fairgate and kube-scheduler wrote on it.

For commands that show the outcome if the pod were created now. The decision on the pod has what was written; a
condition that user and pool both name is the user's where the decision says so, else it is taken for the pool's.
"""

from dataclasses import replace

from webhook.core.model import decision_annotation
from webhook.core.model.decision_annotation import DecisionAnnotation
from webhook.core.model.pod import Handling, Pod
from webhook.core.model.policy import Policy
from webhook.core.model.selector import HELD, Constraints, NodeTerm, Operator, Requirement


def as_asked(pod: Pod, policy: Policy) -> Pod:
    """Take off a pod what the decision on it added, its node, and the evictor's tolerations of held nodes.

    Without a decision only the node and those tolerations are known. A toleration of held nodes is never the user's:
    creation refuses it, and on pods that exist only Fairgate may add it.
    """
    annotation = (
        None if pod.decision_annotation is None else decision_annotation.read(pod.decision_annotation, pod.constraints)
    )
    pod = pod._replace(constraints=without_holds(pod.constraints))
    if pod.handling is Handling.NODE_NAME:
        pod = pod._replace(node_name=None, handling=Handling.MANAGED)
    if annotation is None:
        return pod if pod.team_label is None else pod._replace(team_label=None, tier_label=None)
    return pod._replace(
        decision_annotation=None,
        team_label=None,
        tier_label=annotation.asked,
        constraints=_without_node_choice(pod.constraints, annotation, policy),
    )


def without_holds(constraints: Constraints) -> Constraints:
    """Return constraints without tolerations of held nodes."""
    kept = tuple(each for each in constraints.tolerations if each.key != HELD)
    return constraints if kept == constraints.tolerations else replace(constraints, tolerations=kept)


def _without_node_choice(constraints: Constraints, annotation: DecisionAnnotation, policy: Policy) -> Constraints:
    pool = next((pool for pool in policy.pools if pool.name == annotation.pool), None)
    selector = frozenset() if pool is None or annotation.own.has_selector else frozenset(pool.node_selector)
    affinity = () if pool is None or annotation.own.has_affinity else pool.affinity
    terms = None
    if constraints.terms is not None:
        left = (_without(term, annotation, affinity) for term in constraints.terms)
        terms = tuple(dict.fromkeys(left))
    return Constraints(
        tuple(pair for pair in constraints.node_selector if pair not in selector),
        None if terms == (NodeTerm(),) else terms,
        constraints.tolerations,
        constraints.volumes,
    )


def _without(term: NodeTerm, annotation: DecisionAnnotation, affinity: tuple[Requirement, ...]) -> NodeTerm:
    chosen = {Requirement("metadata.name", Operator.IN, (node,)) for node in annotation.nodes}
    model = annotation.model
    return NodeTerm(
        tuple(
            each
            for each in term.labels
            if each not in affinity and not (model and each.operator is Operator.IN and each.values == (model,))
        ),
        tuple(each for each in term.fields if each not in chosen),
    )
