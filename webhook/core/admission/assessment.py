"""Account, request, pools of one decision.

Rules for pods with GPUs that do not depend on usage: keys and tolerations that only Fairgate may write.
"""

from typing import Final, NamedTuple

from webhook.core.admission.pools import Pools, allowed_pools, resolve_demand
from webhook.core.admission.unplaced import check_externally_placed
from webhook.core.devices.claim_users import ClaimKey
from webhook.core.model.amounts import GpuModel, Namespace, Unlimited, User
from webhook.core.model.constraints import HELD, DomainPlace, Effect, Tier, Toleration
from webhook.core.model.decision import Charge, Deny, NotApplicable, Retry
from webhook.core.model.demand import Demand, in_slices
from webhook.core.model.node import Node
from webhook.core.model.pod import Handling, NamespaceFacts, Pod, Requester
from webhook.core.model.policy import NO_TEAM, Policy, Team, UnknownTeam
from webhook.core.model.reasons import Code, Reason
from webhook.core.quota.limits import (
    Account,
    Request,
    guaranteed_violation,
    has_guaranteed_room,
    model_violation,
    tier_for,
    violations,
)
from webhook.core.quota.shares import Tenancy, exempt_reason, user_of
from webhook.core.quota.usage import EMPTY_USAGE, TeamUsage
from webhook.core.tiers.tier_changes import borrowed_claim
from webhook.core.world.world import World

NO_GPU = NotApplicable(Reason(Code.NO_GPU, "the pod asks for no GPU that policy counts"))
"""The decision on a pod that takes no GPU."""

# access to an enum member costs 0.1 us
_MANAGED, _MIRROR, _FOREIGN = Handling.MANAGED, Handling.MIRROR, Handling.FOREIGN_SCHEDULER
_TOLERATES_HELD = Reason(
    Code.HELD_ROOM,
    "the pod tolerates {taint}, which only Fairgate gives to waiting pods: remove that toleration",
    {"taint": HELD},
)
_TOLERATES_ALL = Reason(
    Code.HELD_ROOM,
    "the pod tolerates every taint, {taint} too, and another scheduler than kube-scheduler places it: name the keys of "
    "the taints in its tolerations",
    {"taint": HELD},
)
_FORGED_KEYS = Reason(
    Code.PROTECTED_KEY_CHANGED,
    "the pod carries label fairgate.dev/team, label fairgate.dev/tier: guaranteed or annotation fairgate.dev/decision, "
    "which only Fairgate writes, never on externally placed pods: remove them",
)
_FALSE_MIRROR = Reason(
    Code.INVALID_REQUEST,
    "the pod carries annotation kubernetes.io/config.mirror, by which kubelets report static pods: remove it",
)
_KEYS_WITHOUT_GPU = Reason(
    Code.PROTECTED_KEY_CHANGED,
    "the pod asks for no GPU and carries label fairgate.dev/team or tier, or annotation fairgate.dev/decision, as only "
    "pods with GPUs do: remove them",
)


def broken_rules(pod: Pod, policy: Policy) -> tuple[Reason, ...]:
    """Return the rules for all pods with GPUs that this pod breaks."""
    broken: tuple[Reason, ...] = ()
    for toleration in pod.constraints.tolerations:  # the evictor trusts labels and tolerations
        if toleration.key == HELD:
            broken = (_TOLERATES_HELD,)
            break
    if pod.grace_seconds > policy.defaults.maximum_grace_seconds:
        broken += (_grace_too_long(pod, policy.defaults.maximum_grace_seconds),)
    return broken


def rules_broken_if_external(pod: Pod, world: World) -> tuple[Reason, ...]:
    """Return the rules for externally placed pods that this pod breaks: forged keys, and room held for other pods."""
    broken = []
    if pod.team_label is not None or pod.decision_annotation is not None or pod.requested_tier is Tier.GUARANTEED:
        broken.append(_FORGED_KEYS)
    if pod.handling is _MIRROR:
        broken.append(_FALSE_MIRROR)
    if pod.handling is _FOREIGN and any(_opens_held_room(each) for each in pod.constraints.tolerations):
        broken.append(_TOLERATES_ALL)
    node = world.fleet.get(pod.node_name) if pod.node_name is not None else None
    if node is not None and any(taint.key == HELD for taint in node.taints):
        words = "node {node} is reserved for waiting pods: create the pod without nodeName, or later"
        broken.append(Reason(Code.HELD_ROOM, words, {"node": node.name}))
    return tuple(broken)


def without_gpus(pod: Pod, *, is_exempt: bool) -> Deny | NotApplicable:
    """Return the decision on a pod without GPUs: refused if it carries keys of pods with GPUs."""
    if is_exempt or (pod.team_label, pod.tier_label, pod.decision_annotation) == (None, None, None):
        return NO_GPU
    return Deny((_KEYS_WITHOUT_GPU,))


def _grace_too_long(pod: Pod, longest: int) -> Reason:
    """Return the refusal of a pod that could keep its GPUs too long after its deletion."""
    words = (
        "terminationGracePeriodSeconds is {seconds}, and pods with GPUs may have at most {longest}: a "
        "deleted pod keeps its GPUs for so long; ask for less, or have your admin raise defaults.maximumGracePeriod"
    )
    return Reason(Code.GRACE_PERIOD_TOO_LONG, words, {"seconds": pod.grace_seconds, "longest": longest})


def _opens_held_room(toleration: Toleration) -> bool:
    """Whether the toleration covers the taint of held nodes, for kube-scheduler and other schedulers."""
    return not toleration.key and toleration.exists and toleration.effect in (None, Effect.NO_SCHEDULE)


# The assessment of a pod, the input of every decision: demand, team, broken limits, pools and tier.
#
# The mutating step, the commit, explanations, policy replay and the workload check all read the same assessment.
# Placement follows it.


_PREEMPTIBLE: Final = Tier.PREEMPTIBLE
_NO_POOLS: Final = Pools(())
_NO_REASONS: Final[tuple[Reason, ...]] = ()

EarlyDecision = Deny | NotApplicable | Retry
"""A decision that needs no placement."""


class Assessment(NamedTuple):
    """One pod compared with the policy and the usage of its team.

    `pod` has its demand resolved, except where `is_counted` is false. `early_decision` is set where no placement
    follows: pods without GPUs, of exempt namespaces or unknown teams, externally placed pods, unknown devices. Then
    `broken` and `pools` may be empty. `rules` are broken at any usage of the team. `broken` are all limits and rules
    that the pod breaks on every node. Limits per GPU model depend on the node, see `model_refusal`. `borrowed` is a
    claim that another pod is charged for as borrowed: who shares borrowed devices borrows, or they could not be
    reclaimed.
    """

    pod: Pod
    account: Account
    request: Request
    rules: tuple[Reason, ...] = _NO_REASONS
    broken: tuple[Reason, ...] = _NO_REASONS
    pools: Pools = _NO_POOLS
    early_decision: EarlyDecision | None = None
    is_counted: bool = True
    borrowed: ClaimKey | None = None

    @property
    def team(self) -> Team:
        """The team that is charged."""
        return self.account.team

    @property
    def usage(self) -> TeamUsage:
        """The usage of the team."""
        return self.account.usage

    @property
    def user(self) -> User | None:
        """The user who created the pod; None if unknown."""
        return self.account.user

    @property
    def warnings(self) -> tuple[Reason, ...]:
        """The warnings that hold on every node."""
        if self.account.user is not None or isinstance(self.account.team.per_user, Unlimited):
            return ()
        words = "this pod's user is not known: team {team}'s limit per user was not checked"
        return (Reason(Code.UNKNOWN_USER, words, {"team": self.team.name}),)

    def request_of(self, demand: Demand) -> Request:
        """Return the request for the same devices, counted by another demand."""
        return self.request if demand.gpus == self.request.gpus else self.request._replace(gpus=demand.gpus)

    def with_demand(self, demand: Demand, policy: Policy) -> "Assessment":
        """Return the assessment of the same pod with another demand: it counts differently on slices."""
        if demand is self.pod.demand:
            return self
        request, pod = self.request_of(demand), self.pod._replace(demand=demand)
        rules = broken_rules(pod, policy)
        return self._replace(pod=pod, request=request, rules=rules, broken=violations(request, self.account) + rules)

    def within(self, place: DomainPlace) -> "Assessment":
        """Return the assessment of the same pod bound to one domain."""
        constraints = self.pod.constraints.joined(requirements=place.requirements)
        return self._replace(pod=self.pod._replace(constraints=constraints))

    def of_user(self, user: User | None) -> "Assessment":
        """Return the assessment of the same pod for a user who is known from an earlier decision."""
        if user == self.account.user:
            return self
        account = self.account._replace(user=user)
        return self._replace(account=account, broken=violations(self.request, account) + self.rules)

    def as_if_unused(self) -> "Assessment":
        """Return the assessment of the same pod if its team held nothing."""
        account = self.account._replace(usage=self.account.usage.emptied())
        return self._replace(account=account, broken=violations(self.request, account) + self.rules)

    def tier(self, demand: Demand, model: GpuModel | None) -> Tier:
        """Return the tier that the pod would get on a GPU model, None for any."""
        if self.borrowed is not None:
            return _PREEMPTIBLE
        team, usage, pod = self.account.team, self.account.usage, self.pod
        return tier_for(demand.gpus, team, usage, model, requested=pod.requested_tier if pod.tier_label else None)

    def model_refusal(self, demand: Demand, model: GpuModel) -> Reason | None:
        """Return why the team's limit for a GPU model has no room for the pod; None if it has room."""
        return model_violation(self.request_of(demand), self.account.team, self.account.usage, model)

    def label_refusal(self, model: GpuModel | None) -> tuple[Reason, ...]:
        """Return why the tier label cannot be met: an unknown value, or `guaranteed` with no guaranteed share left."""
        pod, account = self.pod, self.account
        if pod.tier_label is None:
            return ()
        if pod.requested_tier is None:
            words = (
                "label fairgate.dev/tier is {label:quoted}; write guaranteed (never borrow), preemptible, or leave it"
            )
            return (Reason(Code.INVALID_REQUEST, words, {"label": pod.tier_label}),)
        if self.borrowed is not None and pod.requested_tier is Tier.GUARANTEED:
            words = (
                "label fairgate.dev/tier is guaranteed, and ResourceClaim {claim} is borrowed: the pod would share "
                "borrowed GPUs; drop the label, or claim GPUs of its own"
            )
            return (Reason(Code.GUARANTEED_SHARE_USED, words, {"claim": self.borrowed.name}),)
        is_met = pod.requested_tier is not Tier.GUARANTEED or self.has_guaranteed_room(model)
        return () if is_met else (guaranteed_violation(self.request, account.team, account.usage, model),)

    def has_guaranteed_room(self, model: GpuModel | None) -> bool:
        """Whether the guaranteed share of the team, and of the model if it has one, has room for the pod."""
        return self.borrowed is None and has_guaranteed_room(
            self.pod.demand.gpus, self.account.team, self.account.usage, model
        )


def assess(pod: Pod, requester: Requester, world: World, *, node: Node | None = None) -> Assessment:
    """Return the assessment of a pod: resolve its demand, find its team and user, check all limits and rules.

    `node` is the node of a running pod. DaemonSet, `nodeName` and foreign-scheduler pods are never patched, but they
    are charged, and hard limits and the teams of pools apply to them: `nodeName` must not bypass a limit. A mirror
    pod that a kubelet creates is never refused: its static pod runs already.
    """
    tenancy = world.tenancy(pod.namespace)
    if pod.needs_resolution:
        counted = resolve_demand(pod, requester, world)
        if not isinstance(counted, Pod):
            return _decided_early(pod, tenancy, None, counted)._replace(is_counted=False)
        pod = counted
    if node is not None and node.slice is not None:
        pod = pod._replace(demand=in_slices(pod.demand, (node.slice,), world.policy.resources))
    demand = pod.demand
    if not (demand.gpus or demand.devices):
        return _decided_early(pod, tenancy, None, without_gpus(pod, is_exempt=tenancy.is_exempt))
    if not world.knows(pod.namespace):
        lost = Reason(Code.RACE_LOST, "namespace {namespace} is not known yet: try again", {"namespace": pod.namespace})
        return _decided_early(pod, tenancy, None, Retry(lost))
    user = user_of(pod, requester, tenancy.facts, world.policy, home=_home(requester, world))
    if tenancy.is_exempt:
        why = exempt_reason(tenancy.facts, world.policy)
        return _decided_early(pod, tenancy, user, _counted(pod, tenancy, user, why))
    if pod.handling is _MIRROR and requester.is_kubelet:
        why = Reason(Code.COUNTED_ONLY, "a static pod that runs already: only counted")
        return _decided_early(pod, tenancy, user, _counted(pod, tenancy, user, why))
    team = tenancy.team or default_team(world.policy)
    if team is None:
        return _decided_early(pod, tenancy, user, Deny((unknown_team(pod.namespace, world.policy),)))
    account = Account(team, world.usage(team.name), user, pod, bool(pod.uid) and world.waiting.is_in(pod.uid))
    request = Request(demand.gpus, demand.devices, world.policy.resources, world.now)
    rules = broken_rules(pod, world.policy)
    broken = violations(request, account) + rules
    if pod.handling is not _MANAGED:
        assessed = Assessment(pod, account, request, rules, broken)
        return assessed._replace(early_decision=_externally_placed(assessed, tenancy, world))
    borrowed = borrowed_claim(pod, world) if pod.claims else None
    return Assessment(pod, account, request, rules, broken, allowed_pools(pod, team.name, world), borrowed=borrowed)


def _decided_early(pod: Pod, tenancy: Tenancy, user: User | None, decision: EarlyDecision) -> Assessment:
    account = Account(tenancy.team or NO_TEAM, EMPTY_USAGE, user, pod)
    return Assessment(pod, account, Request(pod.demand.gpus), early_decision=decision)


def _externally_placed(assessed: Assessment, tenancy: Tenancy, world: World) -> EarlyDecision:
    pod = assessed.pod
    external = check_externally_placed(pod, assessed.request, assessed.team, assessed.usage, world)
    if isinstance(external, Retry):
        return external
    if broken := assessed.broken + external.broken + rules_broken_if_external(pod, world):
        return Deny(broken)
    facts = {"handling": str(pod.handling), "team": assessed.team.name}
    why = Reason(Code.COUNTED_ONLY, "{handling} pods are charged to team {team}, never patched", facts)
    return _counted(pod, tenancy, assessed.user, why, external.model)


def _counted(
    pod: Pod, tenancy: Tenancy, user: User | None, why: Reason, model: GpuModel | None = None
) -> NotApplicable:
    return NotApplicable(why, Charge(tenancy.team_name, Tier.PREEMPTIBLE, pod.demand.gpus, model, user))


def charged_user(pod: Pod, requester: Requester, world: World) -> User | None:
    """Return the user that a pod is charged to; None if unknown."""
    return user_of(pod, requester, world.tenancy(pod.namespace).facts, world.policy, home=_home(requester, world))


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
    """Return the refusal of GPUs to a namespace that no team claims."""
    teams = tuple([team.name for team in policy.teams]) or "none"
    return Reason(
        Code.UNKNOWN_TEAM,
        "namespace {namespace} belongs to no team, so its pods may take no GPU; teams: {teams}. "
        "Use a namespace of your team, or ask your admin to add this one to a team's namespaces",
        {"namespace": namespace, "teams": teams},
    )
