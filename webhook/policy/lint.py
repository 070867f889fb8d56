"""A good policy held against a world: what it says that means nothing there. Warnings, not problems."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import filterfalse

from webhook.core.admission.pools import WHOLE_CLUSTER
from webhook.core.model.amount import Limit, Units, Unlimited, format_limit, gpus_text
from webhook.core.model.names import GpuModel, Namespace, NodeName
from webhook.core.model.node import Node
from webhook.core.model.policy import LabelSelector, Policy, Pool, Team, UnknownTeam
from webhook.core.model.selector import NO_CONSTRAINTS
from webhook.core.model.text import plural, plural_gpus
from webhook.core.world.hidden_usage import is_hidden_usage
from webhook.core.world.world import World
from webhook.policy import schema
from webhook.policy.problems import Problem
from webhook.policy.untainted_nodes import has, untainted
from webhook.policy.validate import Draft, Placed


def lint(
    draft: Draft,
    policy: Policy,
    world: World,
    *,
    origin: str,
    knows_nodes: bool = True,
    knows_namespaces: bool = True,
) -> tuple[Problem, ...]:
    """List what of a policy is out of the world's reach; `origin` is named where no single line is meant.

    Where the world does not have all nodes, or all namespaces, what depends on them is not looked at.
    """
    scene = _Scene(policy, world, knows_namespaces)
    found = [
        *(problem for team in draft.teams for problem in _team(team, scene, knows_nodes=knows_nodes)),
        *_without_team(scene, origin),
    ]
    if knows_nodes:
        found += [
            *(problem for pool in draft.pools for problem in _pool(pool, scene)),
            *_guarantees(draft, scene),
            *(problem for name, placed in draft.resources.items() for problem in _resource(name, placed, scene)),
            *_without_pool(scene, origin),
            *(Problem(origin, 0, "pools", text) for text in untainted(policy, world)),
        ]
    return tuple(sorted(found, key=lambda p: (p.file, p.line, p.path, p.message)))


@dataclass(frozen=True, slots=True)
class _Scene:
    policy: Policy
    world: World
    knows_namespaces: bool

    def names(self) -> list[Namespace]:
        """Name the namespaces; none where not all are known."""
        return [facts.name for facts in self.world.namespaces()] if self.knows_namespaces else []

    def team(self, name: str) -> Team:
        return next(team for team in self.policy.teams if team.name == name)

    def pool(self, name: str) -> Pool:
        return next(pool for pool in self.policy.pools if pool.name == name)

    def within(self, pools: Iterable[Pool]) -> list[Node]:
        """List the nodes that are in any of these pools, whatever their taints."""
        return [node for node in self.world.fleet.nodes() if any(has(pool, node) for pool in pools)]

    def reach(self, team: Team) -> list[Node]:
        pools = [pool for pool in self.policy.pools if pool.admits(team.name)]
        return self.within(pools if self.policy.pools else (WHOLE_CLUSTER,))

    def owns_any(self, team: Team) -> bool:
        """Tell whether a namespace of the world is the team's; a world without namespaces says nothing."""
        names = self.names()
        return not names or any(self.world.tenancy(name).team_name == team.name for name in names)


def _team(placed: Placed[schema.Team], scene: _Scene, *, knows_nodes: bool) -> Iterator[Problem]:
    team = scene.team(placed.value.name)
    yield from _namespaces(placed, team, scene)
    if knows_nodes:
        yield from _offered(placed, team, scene)
    for field, own in (("perPod", team.per_pod), ("perUser", team.per_user)):
        if _is_above(own, team.gpus.limit):
            text = f"is never reached: the team's limit is {format_limit(team.gpus.limit)}"
            yield placed.problem(text, field, "limit")


def _offered(placed: Placed[schema.Team], team: Team, scene: _Scene) -> Iterator[Problem]:
    """Hold a team's share against the nodes that it may use."""
    nodes = scene.reach(team)
    there = sum(_gpus(node, scene.policy) for node in nodes)
    offer = f"{_whose(scene)} offer {plural_gpus(there)}"
    if team.gpus.guaranteed > there:
        yield placed.problem(f"cannot be kept: {offer}", "gpus", "guaranteed")
    if _is_above(team.gpus.limit, there):
        yield placed.problem(f"is never reached: {offer}", "gpus", "limit")
    largest = max((_gpus(node, scene.policy) for node in nodes), default=0)
    if _is_above(team.per_pod, largest):
        text = f"is never reached: the largest node offers {plural_gpus(largest)}"
        yield placed.problem(text, "perPod", "limit")
    yield from _models(placed, team, nodes, scene)


def _models(placed: Placed[schema.Team], team: Team, nodes: list[Node], scene: _Scene) -> Iterator[Problem]:
    for model, share in team.models.items():
        there = _of_model(model, nodes, scene.policy)
        if not any(node.model == model for node in scene.world.fleet.nodes()):
            yield placed.problem("no node has this GPU model", "models", model)
        elif share.guaranteed > there:
            text = f"cannot be kept: {_whose(scene)} offer {gpus_text(there)} of them"
            yield placed.problem(text, "models", model, "guaranteed")


def _namespaces(placed: Placed[schema.Team], team: Team, scene: _Scene) -> Iterator[Problem]:
    names = scene.names()
    if not names:
        return
    for index, entry in enumerate(placed.value.namespaces):
        if not any(fnmatchcase(name, entry) for name in names):
            yield placed.problem(f"no namespace is called {entry}", "namespaces", index)
    selector = team.namespace_selector
    if selector is not None and not any(selector.matches(facts.labels) for facts in scene.world.namespaces()):
        yield placed.problem("selects no namespace", "namespaceSelector")


def _pool(placed: Placed[schema.Pool], scene: _Scene) -> Iterator[Problem]:
    pool = scene.pool(placed.value.name)
    nodes = list(scene.world.fleet.nodes())
    for key, value in pool.node_selector:
        if not any(node.labels.get(key) == value for node in nodes):
            yield placed.problem(f"no node carries {key}={value}", "nodeSelector", key)
    for requirement in pool.affinity:
        if not any(requirement.matches(node.labels) for node in nodes):
            text = f"no node meets {requirement.key} {requirement.operator} {', '.join(requirement.values)}"
            yield placed.problem(text.rstrip(), "affinity")
    inside = scene.within((pool,))
    if not inside:
        yield placed.problem("no node is in this pool", "name")
    elif not scene.world.fleet.matching(scene.world.joined(NO_CONSTRAINTS, pool)):
        taints = sorted({f"{taint.key}:{taint.effect}" for node in inside for taint in node.taints})
        yield placed.problem(f"tolerates none of its nodes; they have {', '.join(taints)}", "name")
    if pool.match is not None and pool.match.matches({}):
        yield placed.problem(_catches(pool.match, inside, scene), "match", "podSelector")
    teams = [team for team in scene.policy.teams if pool.admits(team.name)]
    if not any(scene.owns_any(team) for team in teams):
        yield placed.problem("nobody may use it: no team that may enter owns a namespace", "name")


def _catches(match: LabelSelector, inside: list[Node], scene: _Scene) -> str:
    """Say what a selector does that pods without any label meet: it catches whoever does not know of it."""
    which = f"GPU pod without label {' or '.join(sorted({each.key for each in match.requirements}))}"
    seen = filterfalse(is_hidden_usage, scene.world.pods())
    caught = sum(1 for pod in seen if pod.demand.gpus and match.matches(pod.labels))
    now = f" ({caught} of the world's)" if caught else ""
    where = "" if any(_gpus(node, scene.policy) for node in inside) else ", whose nodes have no GPUs"
    return (
        f"selects every {which}{now}, and such pods go to this pool{where}, and to no other; "
        "select by a label that only its own pods carry: matchLabels, In or Exists"
    )


def _guarantees(draft: Draft, scene: _Scene) -> Iterator[Problem]:
    """Hold what is promised to all teams together against what there is, in all and by model."""
    total = sum(team.gpus.guaranteed for team in scene.policy.teams)
    nodes = list(scene.world.fleet.nodes())
    there = sum(_gpus(node, scene.policy) for node in nodes)
    largest = max(draft.teams, key=lambda placed: placed.value.gpus.guaranteed, default=None)
    if largest is not None and total > there:
        yield largest.problem(_promised(total, there), "gpus", "guaranteed")
    promised: dict[GpuModel, int] = {}
    for team in scene.policy.teams:
        for model, share in team.models.items():
            promised[model] = promised.get(model, 0) + share.guaranteed
    for model, units in promised.items():
        there = _of_model(model, nodes, scene.policy)
        if there and units > there:
            first = next(placed for placed in draft.teams if model in scene.team(placed.value.name).models)
            yield first.problem(_promised(units, there), "models", model, "guaranteed")


def _resource(name: str, placed: Placed[schema.Resource], scene: _Scene) -> Iterator[Problem]:
    if not any(name in node.allocatable for node in scene.world.fleet.nodes()):
        yield placed.problem("no node offers this resource")


def _without_team(scene: _Scene, origin: str) -> Iterator[Problem]:
    if scene.policy.defaults.unknown_team is not UnknownTeam.REJECT:
        return
    counts: dict[str, int] = {}
    for pod in filterfalse(is_hidden_usage, scene.world.pods()):
        tenancy = scene.world.tenancy(pod.namespace)
        if pod.demand.gpus and tenancy.team is None and not tenancy.is_exempt:
            counts[pod.namespace] = counts.get(pod.namespace, 0) + 1
    for namespace, count in sorted(counts.items()):
        text = f"namespace {namespace} has {plural(count, 'pod')} with GPUs and no team: new ones are refused"
        yield Problem(origin, 0, "teams", text)


def _without_pool(scene: _Scene, origin: str) -> Iterator[Problem]:
    if not scene.policy.pools:
        return
    inside = {node.name for node in scene.within(scene.policy.pools)}
    outside = [node.name for node in scene.world.fleet.nodes() if _gpus(node, scene.policy) and node.name not in inside]
    if outside:
        text = f"nodes with GPUs that are in no pool, so that no pod is sent there: {_listed(outside)}"
        yield Problem(origin, 0, "pools", text)


def _listed(names: list[NodeName], *, most: int = 5) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _gpus(node: Node, policy: Policy) -> Units:
    return node.gpus(policy.resources)


def _of_model(model: GpuModel, nodes: Iterable[Node], policy: Policy) -> Units:
    return sum(_gpus(node, policy) for node in nodes if node.model == model)


def _whose(scene: _Scene) -> str:
    return "the nodes of its pools" if scene.policy.pools else "all nodes together"


def _is_above(own: Limit, limit: Limit | Units) -> bool:
    return not isinstance(own, Unlimited) and not isinstance(limit, Unlimited) and own > limit


def _promised(units: int, there: Units) -> str:
    return f"all teams together are guaranteed {plural_gpus(units)}, the nodes offer {gpus_text(there)}"
