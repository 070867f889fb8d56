"""Before terms and places: is the pod ours to judge, whose is it, and does it stay inside the hard limits."""

from typing import NamedTuple

from webhook.core.admission.elsewhere import judge_elsewhere
from webhook.core.model.amount import Unlimited
from webhook.core.model.decision import Charge, Deny, NotApplicable, Retry
from webhook.core.model.demand import Demand
from webhook.core.model.names import GpuModel, Namespace, User
from webhook.core.model.pod import Handling, NamespaceFacts, Pod, Requester
from webhook.core.model.policy import NO_TEAM, Policy, Team, UnknownTeam
from webhook.core.model.reason import Code, Reason
from webhook.core.model.selector import HELD, Effect, Toleration
from webhook.core.model.tier import Tier
from webhook.core.quota.limit_text import Request
from webhook.core.quota.limits import violations
from webhook.core.quota.team import user_of
from webhook.core.quota.tenancy import Tenancy
from webhook.core.quota.usage import TeamUsage
from webhook.core.world.world import World

_MANAGED, _MIRROR, _FOREIGN = Handling.MANAGED, Handling.MIRROR, Handling.FOREIGN_SCHEDULER  # a look costs 0.1 us
NO_GPU = NotApplicable(Reason(Code.NO_GPU, "the pod asks for no GPU that policy counts"))
"""What is said of a pod that takes no GPU."""

_NOT_YOURS = Reason(
    Code.HELD_ROOM, f"the pod tolerates {HELD}, which only Fairgate gives to pods that wait: take that toleration out"
)
_TOLERATES_ALL = Reason(
    Code.HELD_ROOM,
    f"the pod tolerates every taint, {HELD} too, and another scheduler than kube-scheduler places it: name the keys of "
    "the taints in its tolerations",
)
_FORGED = Reason(
    Code.PROTECTED_KEY_CHANGED,
    "the pod carries label fairgate.dev/team, label fairgate.dev/tier: guaranteed or annotation fairgate.dev/decision, "
    "which only Fairgate writes, never on pods that others place: take them out",
)
_NOT_STATIC = Reason(
    Code.INVALID_REQUEST,
    "the pod carries annotation kubernetes.io/config.mirror, by which kubelets report static pods: take it out",
)
_NOT_OURS = Reason(
    Code.PROTECTED_KEY_CHANGED,
    "the pod asks for no GPU and carries label fairgate.dev/team or tier, or annotation fairgate.dev/decision, as only "
    "pods with GPUs do: take them out",
)


class Standing(NamedTuple):
    """A pod that is ours to judge: its team, that team's book, its user, its request and the limits it would break."""

    team: Team
    book: TeamUsage
    user: User | None
    request: Request
    broken: tuple[Reason, ...]
    warnings: tuple[Reason, ...]

    def request_of(self, demand: Demand) -> Request:
        """Describe the same request where the pod counts something else: the devices that it asks for are the same."""
        return self.request if demand.gpus == self.request.gpus else self.request._replace(gpus=demand.gpus)


def standing(pod: Pod, requester: Requester, world: World) -> Standing | Deny | NotApplicable | Retry:
    """Find out whose a pod is and hold it against the limits; what is not ours to decide ends here.

    Room that is kept for pods which wait is not to be had by asking for it.

    DaemonSet, `nodeName` and foreign-scheduler pods are never patched, but they are charged, and hard limits and the
    teams of pools hold for them too: a limit that `nodeName` gets round would be none. Only a kubelet's report of a
    static pod is never refused: it runs already.
    """
    if not (pod.demand.gpus or pod.demand.devices):
        return _without_gpus(pod, world)
    if not world.knows(pod.namespace):
        return Retry(Reason(Code.RACE_LOST, f"namespace {pod.namespace} is not known yet: try again"))
    tenancy = world.tenancy(pod.namespace)
    user = user_of(pod, requester, tenancy.facts, world.policy, home=_home(requester, world))
    if tenancy.is_exempt:
        return _counted(pod, tenancy, user, Reason(Code.EXEMPT, f"namespace {pod.namespace} is exempt: only counted"))
    if pod.handling is _MIRROR and requester.is_kubelet:
        return _counted(pod, tenancy, user, Reason(Code.COUNTED_ONLY, "a static pod that runs already: only counted"))
    team = tenancy.team or team_of_nobody(world.policy)
    if team is None:
        return Deny((unknown_team(pod.namespace, world.policy),))
    book = world.usage(team.name)
    request = Request.of(pod.demand, world.policy.resources, world.now)
    broken = violations(request, team, book, user=user) + _forgeries(pod) + overlong(pod, world.policy)
    if pod.handling is not _MANAGED:
        return _placed_elsewhere(pod, Standing(team, book, user, request, broken, ()), tenancy, world)
    return Standing(team, book, user, request, broken, _user_warning(team, user))


def recounted(pod: Pod, found: Standing, policy: Policy) -> Standing:
    """List again what speaks against a pod wherever it is placed, once it is known what it counts there."""
    request = found.request_of(pod.demand)
    over = violations(request, found.team, found.book, user=found.user)
    return found._replace(request=request, broken=over + _forgeries(pod) + overlong(pod, policy))


def _placed_elsewhere(pod: Pod, found: Standing, tenancy: Tenancy, world: World) -> Deny | NotApplicable | Retry:
    elsewhere = judge_elsewhere(pod, found.request, found.team, found.book, world)
    if isinstance(elsewhere, Retry):
        return elsewhere
    if broken := found.broken + elsewhere.broken + _forgeries_apart(pod, world):
        return Deny(broken)
    why = Reason(Code.COUNTED_ONLY, f"{pod.handling} pods are charged to team {found.team.name}, never patched")
    return _counted(pod, tenancy, found.user, why, elsewhere.model)


def _home(requester: Requester, world: World) -> NamespaceFacts | None:
    """Find the namespace of a requesting service account, where that is a team's own."""
    if (name := requester.home) is None:
        return None
    tenancy = world.tenancy(name)
    return None if tenancy.team is None or tenancy.is_exempt else tenancy.facts


def _without_gpus(pod: Pod, world: World) -> Deny | NotApplicable:
    if (pod.team_label, pod.tier_label, pod.mark) == (None, None, None) or world.tenancy(pod.namespace).is_exempt:
        return NO_GPU
    return Deny((_NOT_OURS,))


def _forgeries(pod: Pod) -> tuple[Reason, ...]:
    """Find what a pod claims that is not its to claim: the evictor believes labels and tolerations."""
    found: tuple[Reason, ...] = ()
    for toleration in pod.constraints.tolerations:
        if toleration.key == HELD:
            found = (_NOT_YOURS,)
            break
    return found


def overlong(pod: Pod, policy: Policy) -> tuple[Reason, ...]:
    """Refuse a pod that could keep its GPUs for long after it was deleted."""
    longest = policy.defaults.maximum_grace_seconds
    if pod.grace_seconds <= longest:
        return ()
    text = (
        f"terminationGracePeriodSeconds is {pod.grace_seconds}, and pods with GPUs may have at most {longest}: for so "
        "long a deleted pod keeps its GPUs; ask for less, or have your admin raise defaults.maximumGracePeriod"
    )
    return (Reason(Code.GRACE_PERIOD_TOO_LONG, text),)


def _forgeries_apart(pod: Pod, world: World) -> tuple[Reason, ...]:
    """Find the same of a pod that others place, and whether it would take room that is kept for others."""
    found = []
    if pod.team_label is not None or pod.mark is not None or pod.requested_tier is Tier.GUARANTEED:
        found.append(_FORGED)
    if pod.handling is _MIRROR:
        found.append(_NOT_STATIC)
    if pod.handling is _FOREIGN and any(_opens_held_room(each) for each in pod.constraints.tolerations):
        found.append(_TOLERATES_ALL)
    node = world.fleet.get(pod.node_name) if pod.node_name is not None else None
    if node is not None and any(taint.key == HELD for taint in node.taints):
        text = f"node {node.name} keeps its room for pods that wait: create the pod without nodeName, or later"
        found.append(Reason(Code.HELD_ROOM, text))
    return tuple(found)


def _opens_held_room(toleration: Toleration) -> bool:
    """Tell whether kube-scheduler lets a pod with this toleration onto a held node, and others may, too."""
    return not toleration.key and toleration.exists and toleration.effect in (None, Effect.NO_SCHEDULE)


def _counted(
    pod: Pod, tenancy: Tenancy, user: User | None, why: Reason, model: GpuModel | None = None
) -> NotApplicable:
    return NotApplicable(why, Charge(tenancy.team_name, Tier.PREEMPTIBLE, pod.demand.gpus, model, user))


def team_of_nobody(policy: Policy) -> Team | None:
    """Give the team of namespaces that no team claims; None where their pods are refused."""
    return NO_TEAM if policy.defaults.unknown_team is UnknownTeam.PREEMPTIBLE else None


def unknown_team(namespace: Namespace, policy: Policy) -> Reason:
    """Refuse GPUs to a namespace that no team claims."""
    teams = ", ".join(team.name for team in policy.teams) or "none"
    return Reason(
        Code.UNKNOWN_TEAM,
        f"namespace {namespace} belongs to no team, so its pods may take no GPU; teams: {teams}. "
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
