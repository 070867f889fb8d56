"""Before terms and places: is the pod ours to judge, whose is it, and does it stay inside the hard limits."""

from typing import NamedTuple

from webhook.core.amount import Unlimited
from webhook.core.decision import Charge, Deny, NotApplicable, Retry
from webhook.core.ledger import Book
from webhook.core.limits import violations
from webhook.core.names import UNASSIGNED, User
from webhook.core.pod import Handling, Pod, Requester
from webhook.core.policy import Policy, Team, UnknownTeam
from webhook.core.reason import Code, Reason
from webhook.core.selector import HELD
from webhook.core.team import user_of
from webhook.core.tenancy import Tenancy
from webhook.core.tier import Tier
from webhook.core.world import World

_MANAGED, _MIRROR = Handling.MANAGED, Handling.MIRROR  # a look at an enum's member costs 0.1 us
_UNASSIGNED = Team(UNASSIGNED)
NO_GPU = NotApplicable(Reason(Code.NO_GPU, "the pod asks for no GPU that policy counts"))
"""What is said of a pod that takes no GPU."""

_NOT_YOURS = Reason(
    Code.HELD_ROOM, f"the pod tolerates {HELD}, which only Fairgate gives to pods that wait: take that toleration out"
)


_FORGED = Reason(
    Code.PROTECTED_KEY_CHANGED,
    "the pod carries label fairgate.dev/team or annotation fairgate.dev/decision, which only Fairgate writes, never "
    "on pods that others place: take them out",
)


class Standing(NamedTuple):
    """A pod that is ours to judge: its team, that team's book, its user, and the limits it would break."""

    team: Team
    book: Book
    user: User | None
    broken: tuple[Reason, ...]
    warnings: tuple[Reason, ...]


def standing(pod: Pod, requester: Requester, world: World) -> Standing | Deny | NotApplicable | Retry:
    """Find out whose a pod is and hold it against the limits; what is not ours to decide ends here.

    Room that is kept for pods which wait is not to be had by asking for it.

    DaemonSet, `nodeName` and foreign-scheduler pods are never patched, but they are charged and a hard limit holds for
    them too: a limit that `nodeName` gets round would be none. Only a kubelet's report of a static pod is never
    refused: it runs already.
    """
    if not (pod.demand.gpus or pod.demand.devices):
        return NO_GPU
    if not world.knows(pod.namespace):
        return Retry(Reason(Code.RACE_LOST, f"namespace {pod.namespace} is not known yet: try again"))
    tenancy = world.tenancy(pod.namespace)
    user = user_of(pod, requester, tenancy.facts, world.policy)
    if tenancy.is_exempt:
        return _counted(pod, tenancy, user, Reason(Code.EXEMPT, f"namespace {pod.namespace} is exempt: only counted"))
    if pod.handling is _MIRROR and requester.is_kubelet:
        return _counted(pod, tenancy, user, Reason(Code.COUNTED_ONLY, "a static pod that runs already: only counted"))
    team = tenancy.team or _team_of_nobody(world.policy)
    if team is None:
        return Deny((_unknown_team(pod, world.policy),))
    book = world.book(team.name)
    broken = violations(pod.demand.gpus, team, book, user=user) + _forgeries(pod)
    if pod.handling is not _MANAGED:
        if broken:
            return Deny(broken)
        why = Reason(Code.COUNTED_ONLY, f"{pod.handling} pods are charged to team {team.name}, never patched")
        return _counted(pod, tenancy, user, why)
    return Standing(team, book, user, broken, _user_warning(team, user))


def _forgeries(pod: Pod) -> tuple[Reason, ...]:
    """Find what a pod claims that is not its to claim: the evictor believes labels and tolerations."""
    found: tuple[Reason, ...] = ()
    for toleration in pod.constraints.tolerations:
        if toleration.key == HELD:
            found = (_NOT_YOURS,)
            break
    if pod.handling is not _MANAGED and (pod.team_label is not None or pod.mark is not None):
        found += (_FORGED,)
    return found


def _counted(pod: Pod, tenancy: Tenancy, user: User | None, why: Reason) -> NotApplicable:
    return NotApplicable(why, Charge(tenancy.team_name, Tier.PREEMPTIBLE, pod.demand.gpus, user=user))


def _team_of_nobody(policy: Policy) -> Team | None:
    return _UNASSIGNED if policy.defaults.unknown_team is UnknownTeam.PREEMPTIBLE else None


def _unknown_team(pod: Pod, policy: Policy) -> Reason:
    teams = ", ".join(team.name for team in policy.teams) or "none"
    return Reason(
        Code.UNKNOWN_TEAM,
        f"namespace {pod.namespace} belongs to no team, so its pods may take no GPU; teams: {teams}. "
        "Use a namespace of your team, or ask your admin to add this one to a team's namespaces",
    )


def _user_warning(team: Team, user: User | None) -> tuple[Reason, ...]:
    if user is not None or isinstance(team.per_user, Unlimited):
        return ()
    return (
        Reason(
            Code.UNKNOWN_USER, f"nobody says who this pod's user is: team {team.name}'s limit per user was not checked"
        ),
    )
