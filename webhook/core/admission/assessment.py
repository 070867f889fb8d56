"""What every decision on a pod starts from: its demand, its team, the limits it breaks, its pools and its tier.

The one place where demand, team, limits and pools are put together. The mutating step, the commit, explanations, the
replay of a policy and the check of whole workloads each take what they need of an assessment; placement follows it.
"""

from typing import Final, NamedTuple

from webhook.core.admission.elsewhere import judge_elsewhere
from webhook.core.admission.pod_rules import broken_rules, rules_broken_elsewhere, without_gpus
from webhook.core.admission.pools import Pools, allowed_pools
from webhook.core.admission.resolve_demand import resolve_demand
from webhook.core.model.amount import Unlimited
from webhook.core.model.decision import Charge, Deny, NotApplicable, Retry
from webhook.core.model.demand import Demand, in_slices
from webhook.core.model.names import GpuModel, Namespace, User
from webhook.core.model.node import Node
from webhook.core.model.pod import Handling, NamespaceFacts, Pod, Requester
from webhook.core.model.policy import NO_TEAM, Policy, Team, UnknownTeam
from webhook.core.model.reason import Code, Reason
from webhook.core.model.tier import Tier
from webhook.core.quota.limit_text import Request
from webhook.core.quota.limits import (
    Account,
    guaranteed_violation,
    has_guaranteed_room,
    model_violation,
    tier_for,
    violations,
)
from webhook.core.quota.team import user_of
from webhook.core.quota.tenancy import Tenancy
from webhook.core.quota.usage import EMPTY_USAGE, TeamUsage
from webhook.core.world.world import World

_MANAGED, _MIRROR = Handling.MANAGED, Handling.MIRROR  # a look at an enum's member costs 0.1 us
_NO_POOLS: Final = Pools(())
_NO_REASONS: Final[tuple[Reason, ...]] = ()

Settled = Deny | NotApplicable | Retry
"""A decision that needs no placement."""


class Assessment(NamedTuple):
    """One pod against the policy and what its team holds now.

    `pod` has its demand resolved, unless not `is_counted`. `settled` is the decision where nothing of placement is to
    be judged: pods without GPUs, of exempt namespaces or unknown teams, pods that others place, unknown devices. Then
    `broken` and `pools` may be empty. `rules` are broken whatever the team holds, `broken` are all limits and rules
    that the pod breaks on every node; limits per GPU model depend on the node, see `model_refusal`.
    """

    pod: Pod
    account: Account
    request: Request
    rules: tuple[Reason, ...] = _NO_REASONS
    broken: tuple[Reason, ...] = _NO_REASONS
    pools: Pools = _NO_POOLS
    settled: Settled | None = None
    is_counted: bool = True

    @property
    def team(self) -> Team:
        """The team that is charged."""
        return self.account.team

    @property
    def book(self) -> TeamUsage:
        """What the team holds."""
        return self.account.book

    @property
    def user(self) -> User | None:
        """The user behind the pod; None where that is not known."""
        return self.account.user

    @property
    def warnings(self) -> tuple[Reason, ...]:
        """What to warn of wherever the pod is placed."""
        if self.account.user is not None or isinstance(self.account.team.per_user, Unlimited):
            return ()
        text = f"this pod's user is not known: team {self.team.name}'s limit per user was not checked"
        return (Reason(Code.UNKNOWN_USER, text),)

    def request_of(self, demand: Demand) -> Request:
        """Return the same request where the pod counts something else: it asks for the same devices."""
        return self.request if demand.gpus == self.request.gpus else self.request._replace(gpus=demand.gpus)

    def with_demand(self, demand: Demand, policy: Policy) -> "Assessment":
        """Return the assessment of the same pod where it counts something else, as it does on slices."""
        if demand is self.pod.demand:
            return self
        request, pod = self.request_of(demand), self.pod._replace(demand=demand)
        rules = broken_rules(pod, policy)
        return self._replace(pod=pod, request=request, rules=rules, broken=violations(request, self.account) + rules)

    def tier(self, demand: Demand, model: GpuModel | None) -> Tier:
        """Return the tier that the pod would get on a GPU model, None for any."""
        return tier_for(demand.gpus, self.account.team, self.account.book, model, asked=self.pod.requested_tier)

    def model_refusal(self, demand: Demand, model: GpuModel) -> Reason | None:
        """Return why the team's limit for a GPU model has no room for the pod; None where it has."""
        return model_violation(self.request_of(demand), self.account.team, self.account.book, model)

    def label_refusal(self, model: GpuModel | None) -> tuple[Reason, ...]:
        """Refuse a tier label that cannot be met: an unknown word, or "never borrow" with no share left."""
        pod, account = self.pod, self.account
        if pod.tier_label is None:
            return ()
        if pod.requested_tier is None:
            asked = f"label fairgate.dev/tier is {pod.tier_label!r}"
            text = f"{asked}; write guaranteed (never borrow), preemptible, or leave it"
            return (Reason(Code.INVALID_REQUEST, text),)
        is_met = pod.requested_tier is not Tier.GUARANTEED or self.has_guaranteed_room(model)
        return () if is_met else (guaranteed_violation(self.request, account.team, account.book, model),)

    def has_guaranteed_room(self, model: GpuModel | None) -> bool:
        """Whether the pod stays inside the guaranteed share, of the team and of the model if it has one."""
        return has_guaranteed_room(self.pod.demand.gpus, self.account.team, self.account.book, model)


def assess(pod: Pod, requester: Requester, world: World, *, node: Node | None = None) -> Assessment:
    """Assess a pod: resolve its demand, find its team and user, and hold it against all limits and rules.

    `node` is where it runs already. DaemonSet, `nodeName` and foreign-scheduler pods are never patched, but they are
    charged, and hard limits and the teams of pools hold for them too: `nodeName` must be no way round a limit. Only a
    kubelet's report of a static pod is never refused: it runs already.
    """
    tenancy = world.tenancy(pod.namespace)
    if pod.needs_resolution:
        counted = resolve_demand(pod, requester, world)
        if not isinstance(counted, Pod):
            return _settled(pod, tenancy, None, counted)._replace(is_counted=False)
        pod = counted
    if node is not None and node.slice is not None:
        pod = pod._replace(demand=in_slices(pod.demand, (node.slice,), world.policy.resources))
    demand = pod.demand
    if not (demand.gpus or demand.devices):
        return _settled(pod, tenancy, None, without_gpus(pod, is_exempt=tenancy.is_exempt))
    if not world.knows(pod.namespace):
        text = f"namespace {pod.namespace} is not known yet: try again"
        return _settled(pod, tenancy, None, Retry(Reason(Code.RACE_LOST, text)))
    user = user_of(pod, requester, tenancy.facts, world.policy, home=_home(requester, world))
    if tenancy.is_exempt:
        why = Reason(Code.EXEMPT, f"namespace {pod.namespace} is exempt: only counted")
        return _settled(pod, tenancy, user, _counted(pod, tenancy, user, why))
    if pod.handling is _MIRROR and requester.is_kubelet:
        why = Reason(Code.COUNTED_ONLY, "a static pod that runs already: only counted")
        return _settled(pod, tenancy, user, _counted(pod, tenancy, user, why))
    team = tenancy.team or default_team(world.policy)
    if team is None:
        return _settled(pod, tenancy, user, Deny((unknown_team(pod.namespace, world.policy),)))
    account = Account(team, world.usage(team.name), user, pod)
    request = Request.of(demand, world.policy.resources, world.now)
    rules = broken_rules(pod, world.policy)
    broken = violations(request, account) + rules
    if pod.handling is not _MANAGED:
        found = Assessment(pod, account, request, rules, broken)
        return found._replace(settled=_placed_elsewhere(found, tenancy, world))
    return Assessment(pod, account, request, rules, broken, allowed_pools(pod, team.name, world))


def _settled(pod: Pod, tenancy: Tenancy, user: User | None, decision: Settled) -> Assessment:
    account = Account(tenancy.team or NO_TEAM, EMPTY_USAGE, user, pod)
    return Assessment(pod, account, Request(pod.demand.gpus), settled=decision)


def _placed_elsewhere(found: Assessment, tenancy: Tenancy, world: World) -> Settled:
    pod = found.pod
    elsewhere = judge_elsewhere(pod, found.request, found.team, found.book, world)
    if isinstance(elsewhere, Retry):
        return elsewhere
    if broken := found.broken + elsewhere.broken + rules_broken_elsewhere(pod, world):
        return Deny(broken)
    why = Reason(Code.COUNTED_ONLY, f"{pod.handling} pods are charged to team {found.team.name}, never patched")
    return _counted(pod, tenancy, found.user, why, elsewhere.model)


def _counted(
    pod: Pod, tenancy: Tenancy, user: User | None, why: Reason, model: GpuModel | None = None
) -> NotApplicable:
    return NotApplicable(why, Charge(tenancy.team_name, Tier.PREEMPTIBLE, pod.demand.gpus, model, user))


def _home(requester: Requester, world: World) -> NamespaceFacts | None:
    """Return the namespace of a requesting service account, where that is a team's own."""
    if (name := requester.home) is None:
        return None
    tenancy = world.tenancy(name)
    return None if tenancy.team is None or tenancy.is_exempt else tenancy.facts


def default_team(policy: Policy) -> Team | None:
    """Return the team of namespaces that no team claims; None where their pods are refused."""
    return NO_TEAM if policy.defaults.unknown_team is UnknownTeam.PREEMPTIBLE else None


def unknown_team(namespace: Namespace, policy: Policy) -> Reason:
    """Refuse GPUs to a namespace that no team claims."""
    teams = ", ".join(team.name for team in policy.teams) or "none"
    return Reason(
        Code.UNKNOWN_TEAM,
        f"namespace {namespace} belongs to no team, so its pods may take no GPU; teams: {teams}. "
        "Use a namespace of your team, or ask your admin to add this one to a team's namespaces",
    )
