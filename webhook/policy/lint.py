"""What is odd in a world.

Devices that nodes offer and policy does not count, or counts as more GPUs than there are.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import filterfalse
from typing import Final, NamedTuple

from webhook.core.admission.pools import WHOLE_CLUSTER
from webhook.core.explain.pod_rows import autoscaling_problems
from webhook.core.model.amounts import (
    DEVICE_CLASS,
    GpuModel,
    Limit,
    Namespace,
    NodeName,
    ResourceName,
    Units,
    Unlimited,
    format_limit,
    gpus_text,
    plural,
    plural_gpus,
    printable,
)
from webhook.core.model.constraints import HELD, NO_CONSTRAINTS, Effect, Taint, Toleration
from webhook.core.model.gpu_shares import DEVICE, REPLICAS, looks_like_gpu
from webhook.core.model.node import Node
from webhook.core.model.policy import LabelSelector, Policy, Pool, Team, UnknownGpu, UnknownTeam
from webhook.core.quota.shares import is_exempt_by_default
from webhook.core.world.hidden_usage import is_hidden_usage
from webhook.core.world.world import World
from webhook.policy import schema
from webhook.policy.documents import Located, Problem
from webhook.policy.teams import Team as TeamSpec
from webhook.policy.validate import Draft

_MOST_NAMES = 5


def unknown_devices(policy: Policy, world: World) -> Iterator[str]:
    """Yield a text for each resource of the nodes that looks like a GPU and that policy does not name."""
    nodes: dict[ResourceName, list[NodeName]] = {}
    for node in world.fleet.nodes():
        for name in dict.fromkeys((*node.allocatable, *node.at_best)):
            if node.amount_at_best(name) and _is_unknown(name, policy, world):
                nodes.setdefault(name, []).append(node.name)
    effect = "are refused" if policy.defaults.unknown_gpu is UnknownGpu.REJECT else "count nothing (unknownGpu: ignore)"
    for name, offering in sorted(nodes.items()):
        counts = [held for pod in world.pods() for each, held in pod.demand.requests if each == name]
        have = "has" if len(counts) == 1 else "have"
        pods = f"; {plural(len(counts), 'pod')} here {have} {sum(counts)}, uncounted" if counts else ""
        yield (
            f"{printable(name)} looks like a GPU, is offered by {listed(offering)}, and policy does not count it: pods "
            f"that ask for it {effect}{pods}; name it in resources with gpus or perGpu (gpus: 0 if it is none)"
        )


def counted_replicas(policy: Policy, world: World) -> Iterator[str]:
    """Yield a text for each number of replicas that nodes offer of a GPU while policy counts a GPU for each."""
    if policy.counts_replicas or DEVICE not in policy.resources:
        return
    nodes: dict[int, list[NodeName]] = {}
    for node in world.fleet.nodes():
        replicas = node.by_replicas(is_counted=True).replicas
        if replicas > 1 and node.slice is None and node.amount_at_best(DEVICE):
            nodes.setdefault(replicas, []).append(node.name)
    for replicas, offering in sorted(nodes.items()):
        yield (
            f"one GPU is offered as {replicas} pieces of {DEVICE} by {listed(offering)} (label {REPLICAS}), each "
            f"counted as a GPU; write resources: {{{DEVICE}: {{perReplica: true}}}}, or weigh nvidia.com/gpu.shared "
            "after renameByDefault"
        )


def listed(names: Sequence[str]) -> str:
    """Return the first of some names, and how many follow."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _is_unknown(name: ResourceName, policy: Policy, world: World) -> bool:
    if name in policy.resources or name in policy.ignored_resources or "/" not in name:
        return False
    return looks_like_gpu(name) and not name.startswith(DEVICE_CLASS) and not world.claims.classes.knows(name)


# GPU pods of namespaces of no team: which of them would be refused, and which are exempt by default.


_MOST_NAMESPACES: Final = 5
"""Namespaces without a team that have a warning each."""


def refused_pods(policy: Policy, world: World, ended: Iterable[Namespace]) -> Iterator[str]:
    """Yield a text for each namespace of no team that has GPU pods, or one for all; `ended` are those of ended pods."""
    if policy.defaults.unknown_team is not UnknownTeam.REJECT:
        return
    stray = {name: each for name, each in _pods(world, ended).items() if _is_refused(name, world)}
    if len(stray) > _MOST_NAMESPACES:
        pods = _counted(sum(stray.values(), Counter()))
        yield f"{len(stray)} namespaces have {pods} but no team, so new pods are refused: {listed(sorted(stray))}"
        return
    for name, pods_there in sorted(stray.items()):
        yield f"namespace {name} has {_counted(pods_there)} but no team: new pods are refused"


def exempt_by_default(policy: Policy, world: World, ended: Iterable[Namespace]) -> Iterator[str]:
    """Yield the namespaces of device operators, with their GPU pods, that only a default exempts."""
    found = _pods(world, ended)
    for facts in world.namespaces():
        if is_exempt_by_default(facts, policy):
            pods = f": {_counted(found[facts.name])}" if facts.name in found else ""
            yield f"{facts.name}{pods}"


def _pods(world: World, ended: Iterable[Namespace]) -> dict[Namespace, "Counter[bool]"]:
    """Return how many GPU pods each namespace has, by whether they have ended."""
    found: dict[Namespace, Counter[bool]] = {}
    running = (pod.namespace for pod in filterfalse(is_hidden_usage, world.pods()) if pod.demand.gpus)
    for has_ended, names in ((False, running), (True, ended)):
        for name in names:
            found.setdefault(name, Counter())[has_ended] += 1
    return found


def _is_refused(name: Namespace, world: World) -> bool:
    tenancy = world.tenancy(name)
    return tenancy.team is None and not tenancy.is_exempt


def _counted(pods: "Counter[bool]") -> str:
    has_ended = "" if not pods[True] else f" ({'all' if not pods[False] else pods[True]} of them ended)"
    return f"{plural(pods.total(), 'pod')} with GPUs{has_ended}"


# Finds GPU nodes without a taint, which pods without GPUs can fill, and the command that taints them.


_REPELLING: Final = frozenset({Effect.NO_SCHEDULE, Effect.NO_EXECUTE})
_TRANSIENT: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of taints that Kubernetes sets while a node has a problem."""
_MAX_LISTED: Final = 5
_MAX_NAMED: Final = 20
_NVIDIA: Final = "nvidia.com"


class _Remedy(NamedTuple):
    """The taint to set, in kubectl's syntax, and whether a pool tolerates it already."""

    taint: str
    is_tolerated: bool


def untainted(policy: Policy, world: World) -> Iterator[str]:
    """Yield a message for GPU nodes that repel no pod, with the command that keeps pods without GPUs off them."""
    nodes = sorted(world.fleet.nodes(), key=lambda node: node.name)
    found: dict[_Remedy, list[Node]] = defaultdict(list)
    for node in nodes:
        if any(node.offers(policy.resources)) and not any(map(_repels, node.taints)):
            found[_remedy(node, policy)].append(node)
    for remedy, open_nodes in sorted(found.items()):
        named = ", ".join(node.name for node in open_nodes[:_MAX_LISTED])
        named += f" and {len(open_nodes) - _MAX_LISTED} more" if len(open_nodes) > _MAX_LISTED else ""
        first = "" if remedy.is_tolerated else f"add a toleration of {_key(remedy.taint)} to their pool, then "
        selected = _selected(open_nodes, nodes)
        each = "" if selected else "for each of them "
        yield (
            f"GPU nodes without a taint, on which pods without GPUs can use up cpu and memory: {named}; "
            f"{first}{each}kubectl taint nodes {selected or 'NODE'} {remedy.taint}"
        )


def _repels(taint: Taint) -> bool:
    return taint.effect in _REPELLING and taint.key != HELD and not taint.key.startswith(_TRANSIENT)


def _remedy(node: Node, policy: Policy) -> _Remedy:
    """Return a taint that a pool of the node tolerates, otherwise one named after the vendor's GPU resource.

    Vendor DaemonSets on GPU nodes, such as NVIDIA's device plugin, tolerate that key.
    """
    for pool in policy.pools:
        if contains_node(pool, node):
            for toleration in pool.tolerations:
                if toleration.key and toleration.effect in (None, Effect.NO_SCHEDULE):
                    return _Remedy(_taint_text(toleration), is_tolerated=True)
    resource = min(offer.resource for offer in node.offers(policy.resources))
    key = DEVICE if _NVIDIA in resource else resource
    return _Remedy(f"{key}=present:{Effect.NO_SCHEDULE}", is_tolerated=False)


def _taint_text(toleration: Toleration) -> str:
    value = toleration.value or ("present" if toleration.exists else "")
    return f"{toleration.key}={value}:{Effect.NO_SCHEDULE}"


def _key(taint: str) -> str:
    return taint.partition("=")[0]


def _selected(wanted: Sequence[Node], nodes: Sequence[Node]) -> str:
    """Return kubectl's arguments for these nodes: a label that only they have, or names; "" where these are many."""
    names = {node.name for node in wanted}
    if len(wanted) > _MAX_LISTED:
        shared = set(wanted[0].labels.items()).intersection(*(node.labels.items() for node in wanted[1:]))
        for node in nodes:
            if node.name not in names:
                shared -= node.labels.items()
        if shared:
            key, value = min(shared)
            return f"-l {key}={value}"
    if len(wanted) <= _MAX_NAMED:
        return " ".join(node.name for node in wanted)
    return _by_values(wanted, [node for node in nodes if node.name not in names])


def _by_values(wanted: Sequence[Node], others: Sequence[Node]) -> str:
    """Return an argument with a label of which only these nodes have some few values; "" where there is none."""
    for key in sorted(set(wanted[0].labels).intersection(*(node.labels for node in wanted[1:]))):
        values = {node.labels[key] for node in wanted}
        if len(values) <= _MAX_LISTED and not any(node.labels.get(key) in values for node in others):
            return f"-l '{key} in ({','.join(sorted(values))})'"
    return ""


def contains_node(pool: Pool, node: Node) -> bool:
    """Whether a node is in a pool, regardless of its taints."""
    return all(node.labels.get(key) == value for key, value in pool.node_selector) and all(
        requirement.matches(node.labels) for requirement in pool.affinity
    )


# Compares a valid policy with a world and warns of what has no effect there, or cannot be met.


def lint(
    draft: Draft,
    policy: Policy,
    world: World,
    *,
    origin: str,
    knows_nodes: bool = True,
    knows_namespaces: bool = True,
    ended: Collection[Namespace] = (),
) -> tuple[Problem, ...]:
    """Return the warnings; those without a line name `origin`. `ended` are the namespaces of GPU pods that have ended.

    If the world does not have all nodes, or all namespaces, what depends on them is not checked.
    """
    context = _Context(policy, world, knows_namespaces)
    found = [
        *(problem for team in draft.teams for problem in _team(team, context, knows_nodes=knows_nodes)),
        *(Problem(origin, 0, "teams", text) for text in refused_pods(policy, world, ended)),
    ]
    if knows_nodes:
        found += [
            *(problem for pool in draft.pools for problem in _pool(pool, context)),
            *_guarantees(draft, context),
            *(problem for name, part in draft.resources.items() for problem in _resource(name, part, context)),
            *_without_label(draft, context),
            *_without_pool(context, origin),
            *_autoscaling(draft, context, origin),
            *(Problem(origin, 0, "pools", text) for text in untainted(policy, world)),
            *(Problem(origin, 0, "resources", text) for text in unknown_devices(policy, world)),
            *(Problem(origin, 0, "resources", text) for text in counted_replicas(policy, world)),
        ]
    return tuple(sorted(found, key=lambda p: (p.file, p.line, p.path, p.message)))


@dataclass(frozen=True, slots=True)
class _Context:
    policy: Policy
    world: World
    knows_namespaces: bool

    def names(self) -> list[Namespace]:
        """Return the namespaces; none if not all are known."""
        return [facts.name for facts in self.world.namespaces()] if self.knows_namespaces else []

    def team(self, name: str) -> Team:
        return next(team for team in self.policy.teams if team.name == name)

    def pool(self, name: str) -> Pool:
        return next(pool for pool in self.policy.pools if pool.name == name)

    def nodes_in(self, pools: Iterable[Pool]) -> list[Node]:
        """Return the nodes in any of these pools, regardless of their taints."""
        return [node for node in self.world.fleet.nodes() if any(contains_node(pool, node) for pool in pools)]

    def usable_nodes(self, team: Team) -> list[Node]:
        pools = [pool for pool in self.policy.pools if pool.admits(team.name)]
        return self.nodes_in(pools if self.policy.pools else (WHOLE_CLUSTER,))

    def owns_any(self, team: Team) -> bool:
        """Whether the team owns a namespace of the world; true if the world has no namespaces."""
        names = self.names()
        return not names or any(self.world.tenancy(name).team_name == team.name for name in names)


def _team(part: Located[TeamSpec], context: _Context, *, knows_nodes: bool) -> Iterator[Problem]:
    team = context.team(part.value.name)
    yield from _namespaces(part, team, context)
    if knows_nodes:
        yield from _capacity(part, team, context)
    for field, own in (("perPod", team.per_pod), ("perUser", team.per_user)):
        if _is_above(own, team.gpus.limit):
            text = f"is never reached: the team's limit is {format_limit(team.gpus.limit)}"
            yield part.problem(text, field, "limit")


def _capacity(part: Located[TeamSpec], team: Team, context: _Context) -> Iterator[Problem]:
    """Compare a team's share with the nodes that it may use."""
    nodes = context.usable_nodes(team)
    capacity = sum(_gpus(node, context.policy) for node in nodes)
    have = f"{_nodes_text(context)} have {plural_gpus(capacity)}"
    if team.gpus.guaranteed > capacity:
        yield part.problem(f"cannot be met: {have}", "gpus", "guaranteed")
    if _is_above(team.gpus.limit, capacity):
        yield part.problem(f"is never reached: {have}", "gpus", "limit")
    largest = max((_gpus(node, context.policy) for node in nodes), default=0)
    if _is_above(team.per_pod, largest):
        text = f"is never reached: the largest node has {plural_gpus(largest)}"
        yield part.problem(text, "perPod", "limit")
    yield from _models(part, team, nodes, context)


def _models(part: Located[TeamSpec], team: Team, nodes: list[Node], context: _Context) -> Iterator[Problem]:
    for model, share in team.models.items():
        capacity = _of_model(model, nodes, context.policy)
        if not any(node.model == model for node in context.world.fleet.nodes()):
            yield part.problem("no node has this GPU model", "models", model)
        elif share.guaranteed > capacity:
            text = f"cannot be met: {_nodes_text(context)} have {plural_gpus(capacity)} of this model"
            yield part.problem(text, "models", model, "guaranteed")


def _namespaces(part: Located[TeamSpec], team: Team, context: _Context) -> Iterator[Problem]:
    names = context.names()
    if not names:
        return
    for index, entry in enumerate(part.value.namespaces):
        if not any(fnmatchcase(name, entry) for name in names):
            yield part.problem(f"no namespace matches {entry}", "namespaces", index)
    selector = team.namespace_selector
    if selector is not None and not any(selector.matches(facts.labels) for facts in context.world.namespaces()):
        yield part.problem("selects no namespace", "namespaceSelector")


def _pool(part: Located[schema.Pool], context: _Context) -> Iterator[Problem]:
    pool = context.pool(part.value.name)
    nodes = list(context.world.fleet.nodes())
    for key, value in pool.node_selector:
        if not any(node.labels.get(key) == value for node in nodes):
            yield part.problem(f"no node has label {key}={value}", "nodeSelector", key)
    for requirement in pool.affinity:
        if not any(requirement.matches(node.labels) for node in nodes):
            text = f"no node matches {requirement.key} {requirement.operator} {', '.join(requirement.values)}"
            yield part.problem(text.rstrip(), "affinity")
    inside = context.nodes_in((pool,))
    if not inside:
        yield part.problem("this pool has no nodes", "name")
    elif not context.world.fleet.matching(context.world.pools.joined(NO_CONSTRAINTS, pool)):
        taints = sorted({f"{taint.key}:{taint.effect}" for node in inside for taint in node.taints})
        yield part.problem(f"does not tolerate the taints of its nodes: {', '.join(taints)}", "name")
    if pool.match is not None and pool.match.matches({}):
        yield part.problem(_broad_match(pool.match, inside, context), "match", "podSelector")
    teams = [team for team in context.policy.teams if pool.admits(team.name)]
    if not any(context.owns_any(team) for team in teams):
        yield part.problem("no pod can use this pool: none of its teams has a namespace", "name")


def _broad_match(match: LabelSelector, inside: list[Node], context: _Context) -> str:
    """Return a warning of a selector that pods without labels match."""
    which = f"GPU pod without label {' or '.join(sorted({each.key for each in match.requirements}))}"
    pods = filterfalse(is_hidden_usage, context.world.pods())
    matching = sum(1 for pod in pods if pod.demand.gpus and match.matches(pod.labels))
    now = f" ({matching} in this world)" if matching else ""
    where = "" if any(_gpus(node, context.policy) for node in inside) else ", whose nodes have no GPUs"
    return (
        f"selects every {which}{now}; such pods can run only in this pool{where}; "
        "select by a label that only the pods of this pool have: matchLabels, In or Exists"
    )


def _guarantees(draft: Draft, context: _Context) -> Iterator[Problem]:
    """Compare the guaranteed shares of all teams together with the nodes, in total and by model."""
    total = sum(team.gpus.guaranteed for team in context.policy.teams if not team.departments)
    total += sum(each.gpus.guaranteed for each in context.policy.departments if each.parent is None)
    nodes = list(context.world.fleet.nodes())
    capacity = sum(_gpus(node, context.policy) for node in nodes)
    largest = max(draft.teams, key=lambda part: part.value.gpus.guaranteed, default=None)
    if largest is not None and total > capacity:
        yield largest.problem(_overcommitted(total, capacity), "gpus", "guaranteed")
    guaranteed: dict[GpuModel, int] = {}
    for team in context.policy.teams:
        for model, share in team.models.items():
            guaranteed[model] = guaranteed.get(model, 0) + share.guaranteed
    for model, units in guaranteed.items():
        capacity = _of_model(model, nodes, context.policy)
        if capacity and units > capacity:
            first = next(part for part in draft.teams if model in context.team(part.value.name).models)
            yield first.problem(_overcommitted(units, capacity), "models", model, "guaranteed")


def _resource(name: str, part: Located[schema.Resource], context: _Context) -> Iterator[Problem]:
    if not any(name in node.allocatable for node in context.world.fleet.nodes()):
        yield part.problem("no node has this resource")


def _without_label(draft: Draft, context: _Context) -> Iterator[Problem]:
    """Yield the levels of domains whose label no node has: gangs are placed as if they were not listed."""
    part = draft.sections.get("topology")
    nodes = list(context.world.fleet.nodes())
    for index, key in enumerate(context.policy.topology.levels):
        if part is not None and nodes and not any(key in node.labels for node in nodes):
            yield part.problem(f"no node has label {key}", "levels", index)


def _without_pool(context: _Context, origin: str) -> Iterator[Problem]:
    if not context.policy.pools:
        return
    inside = {node.name for node in context.nodes_in(context.policy.pools)}
    outside = [
        node.name for node in context.world.fleet.nodes() if _gpus(node, context.policy) and node.name not in inside
    ]
    if outside:
        text = f"GPU nodes that are in no pool, so no pod is placed there: {listed(outside)}"
        yield Problem(origin, 0, "pools", text)


def _gpus(node: Node, policy: Policy) -> Units:
    return node.recovered.gpus(policy.resources)


def _of_model(model: GpuModel, nodes: Iterable[Node], policy: Policy) -> Units:
    return sum(_gpus(node, policy) for node in nodes if node.model == model)


def _nodes_text(context: _Context) -> str:
    return "the nodes of its pools" if context.policy.pools else "all nodes together"


def _is_above(own: Limit, limit: Limit | Units) -> bool:
    return not isinstance(own, Unlimited) and not isinstance(limit, Unlimited) and own > limit


def _overcommitted(units: int, capacity: Units) -> str:
    return f"all teams together are guaranteed {plural_gpus(units)}, but the nodes have {gpus_text(capacity)}"


def _autoscaling(draft: Draft, context: _Context, origin: str) -> Iterator[Problem]:
    """Warn where policy says something else of an autoscaler than the cluster, or does not say what only it can."""
    parts = {part.value.name: part for part in draft.pools}
    for pool, text in autoscaling_problems(context.world):
        part = parts.get(pool.name)
        field = "autoscaled"
        yield Problem(origin, 0, "pools", f"{field} {text}") if part is None else part.problem(f"{text}", field)
