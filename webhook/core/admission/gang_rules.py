"""Pods of a gang at the door: they wait in line until the whole gang is judged, so that no part of it holds GPUs."""

from collections.abc import Collection, Sequence

from webhook.core.admission.assessment import Assessment
from webhook.core.admission.domain_rules import gang_refusal
from webhook.core.admission.queueing import (
    can_queue,
    reasons_never_to_start,
    shared_limits,
    text_of_limits,
    text_of_owed,
    wait_in_line,
)
from webhook.core.model.amount import Units, Unlimited, gpus_text
from webhook.core.model.decision import Deny, Queue
from webhook.core.model.gang import MAX_MEMBERS, Gang
from webhook.core.model.pod import Handling
from webhook.core.model.policy import Policy, Team
from webhook.core.model.reason import Code, Reason
from webhook.core.model.text import plural_gpus, printable
from webhook.core.quota.limits import AppliedLimit
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World

_MANAGED = Handling.MANAGED  # access to an enum member costs 0.1 us


def starts_whole(gang: Gang, team: Team, policy: Policy) -> bool:
    """Whether a gang waits in line until it can start whole: by its annotation, or since its team's pods may wait."""
    return gang.is_requested or can_queue(team, policy)


def queue_for_gang(assessed: Assessment, world: World) -> Queue | Deny | None:
    """Return whether a pod waits in line for the rest of its gang; None for others, and where the gang has started."""
    pod, gang = assessed.pod, assessed.pod.gang
    if gang is None or assessed.early_decision is not None or pod.handling is not _MANAGED:
        return None
    if not starts_whole(gang, assessed.team, world.policy):
        return None
    if world.gangs.has_started(gang.id):
        return _queue_for_reservation(assessed, gang, world)
    if never := reasons_never_to_start(assessed, world):
        return Deny(never)
    before = world.waiting.of_gang(gang.id)
    if refusal := _too_large(assessed, gang, before) or _never_fits(assessed, gang, before, world):
        return Deny((refusal,))
    come = len(before) + 1 + world.gangs.others(gang.id)
    sizes = sorted(({gang.size} | {member.pod.gang.size for member in before if member.pod.gang is not None}) - {0})
    text = come_text(gang.name, come, sizes[-1] if sizes else 0)
    queued = wait_in_line(assessed, Code.WAITS_FOR_GANG, text, world)
    return _with_disagreement(queued, gang, sizes) if len(sizes) > 1 and isinstance(queued, Queue) else queued


def _with_disagreement(queued: Queue, gang: Gang, sizes: Sequence[int]) -> Queue:
    """Add the warning that the pods of a gang declare several sizes, and which counts."""
    text = f"pods of gang {printable(gang.name)} declare sizes from {sizes[0]:,} to {sizes[-1]:,}: the largest counts"
    return queued._replace(warnings=(*queued.warnings, Reason(Code.GANG_IGNORED, text)))


def _queue_for_reservation(assessed: Assessment, gang: Gang, world: World) -> Queue | None:
    """Return that a pod waits for the leader to give it the room that is kept for it; None where none is kept."""
    if gang.id not in world.gang_reservations:
        return None
    kept = wait_in_line(assessed, Code.WAITS_FOR_GANG, f"room is kept for it in gang {printable(gang.name)}", world)
    return kept if isinstance(kept, Queue) else None


def come_text(name: str, come: int, size: int) -> str:
    """Return how many members of a gang have come, of a size that is 0 where it is unknown."""
    of = f" of {size:,}" if size else ""
    verb = "has" if come == 1 and not size else "have"
    plural = "" if come == 1 and not size else "s"
    return f"{come:,}{of} member{plural} of gang {printable(name)} {verb} come"


def never_reason(assessed: Assessment, gang: str, gpus: Units) -> Reason | None:
    """Return why the members of a gang could not start together even if no pod held anything; None if they could."""
    limit = next(iter(limits_for(assessed.as_if_unused(), gpus)), None)
    if limit is None or isinstance(limit.limit, Unlimited):
        return None
    allowed = f"the limit of {printable(limit.subject)} is {gpus_text(limit.limit)}"
    text = f"gang {printable(gang)} needs {plural_gpus(gpus)} together, and {allowed}: it can never start whole"
    return Reason(limit.code, f"{text}; make it smaller")


def limits_for(assessed: Assessment, gpus: Units) -> list[AppliedLimit]:
    """Return the limits of the team, its user and departments that have no room for so many GPU units."""
    return [each for each in shared_limits(assessed) if each.model is None and each.is_exceeded_by(gpus)]


def limit_text(assessed: Assessment, blocking: list[AppliedLimit], gang: str, gpus: Units, *, is_owed: bool) -> str:
    """Return what is held of limits that have no room for the members of a gang together; `is_owed`: only for now."""
    held = text_of_owed(assessed, blocking, gpus) if is_owed else text_of_limits(blocking, gpus)
    return f"gang {printable(gang)} needs {plural_gpus(gpus)} together; {held}"


def _never_fits(assessed: Assessment, gang: Gang, before: Collection[WaitingPod], world: World) -> Reason | None:
    """Return why the nodes, or one domain where it requires one, could never hold what has come of a gang.

    Without a declared size each pod is judged alone, as in `_too_large`. To spare passes over all nodes, the pods
    together are judged when the last one comes, and at each doubling before.
    """
    pods = [assessed.pod]
    if gang.size and before:
        come = len(before) + 1
        if come != gang.size and come & (come - 1):
            return None
        pods += [member.pod for member in before]
    return gang_refusal(pods, gang, assessed.team.name, world)


def too_many_text(gang: str, size: int) -> str:
    """Return that a gang has more members than may start together."""
    return f"gang {printable(gang)} has {size:,} members; at most {MAX_MEMBERS} start together"


def _too_large(assessed: Assessment, gang: Gang, before: Collection[WaitingPod]) -> Reason | None:
    """Return why a gang of a declared size is refused: what has come of it already is more than may ever start.

    Without a declared size the pods that came would pass for the whole gang once one of them is refused.
    """
    if gang.size > MAX_MEMBERS:
        return Reason(Code.TOO_LARGE, too_many_text(gang.name, gang.size))
    if not gang.size or len(before) >= gang.size:
        return None
    needed = assessed.request.gpus + sum(member.pod.demand.gpus for member in before)
    return never_reason(assessed, gang.name, needed)
