"""Waiting pods as targets that room is sought for: those in line, and those that their scheduler finds no room for."""

from webhook.core.admission.assessment import Assessment, assess
from webhook.core.defragment.move_plan import Target
from webhook.core.defragment.usable_nodes import usable_nodes
from webhook.core.gangs.gang_line import gang_in_line
from webhook.core.model.domain_request import DomainRequest
from webhook.core.model.names import GangId
from webhook.core.model.pod import CONTROLLER, Pod, Requester
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World

_NO_REQUESTER = Requester("")


def target_in_line(waiting: WaitingPod, world: World, *, held: int = 0) -> Target | None:
    """Return a pod that waits in line; None where a limit or another controller's gate keeps it there.

    `held`, here and below, are the slots of nodes that are kept for others.
    """
    assessed = assess(waiting.pod, _NO_REQUESTER, world).of_user(waiting.user)
    if assessed.broken or not waiting.has_turn:
        return None
    gang = waiting.pod.gang
    own = None if gang is None else gang.domain
    return _target(assessed, world, held, since=waiting.created, gang=gang_in_line(waiting, world), domain=own)


def target_of_scheduler(gpu_pod: ReclaimPod, template: Pod, world: World, *, held: int = 0) -> Target | None:
    """Return a pod without a node; None where its scheduler reports something else than too little room.

    `template` is the pod as its user asked for it.
    """
    report = gpu_pod.report
    if report is None or not report.is_for_room or gpu_pod.is_gated or gpu_pod.pod.is_terminating:
        return None
    assessed = assess(template, CONTROLLER, world)
    return _target(assessed, world, held, since=report.since, gang=gpu_pod.gang, domain=gpu_pod.domain)


def target_to_come(pod: Pod, requester: Requester, world: World, *, held: int = 0) -> Target | None:
    """Return a pod that does not exist; None where a limit or a rule would refuse it, or keep it waiting."""
    assessed = assess(pod, requester, world)
    return None if assessed.broken else _target(assessed, world, held)


def _target(
    assessed: Assessment,
    world: World,
    held: int,
    *,
    since: int = 0,
    gang: GangId | None = None,
    domain: DomainRequest | None = None,
) -> Target | None:
    """Return a pod as a target, in the domain that it asks for or the PodGroup of its gang does."""
    if assessed.early_decision is not None:
        return None
    pod = assessed.pod
    if domain is None and gang is not None:
        domain = world.group_domains.get(gang)
    return Target(
        f"{pod.namespace}/{pod.name}",
        assessed.team.name,
        pod.demand,
        usable_nodes(assessed, world, held=held),
        since,
        gang or "",
        domain,
    )
