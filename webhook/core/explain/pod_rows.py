"""Pods that stand out: unusual, idle, waiting for an autoscaler.

What is known of a cluster's autoscalers: which pools grow, and where policy and cluster do not agree.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from webhook.core.admission.pools import WHOLE_CLUSTER, gpu_nodes, grows, owned
from webhook.core.explain.candidates import excluders
from webhook.core.model.amounts import Namespace, TeamName, Units, plural, plural_gpus, printable
from webhook.core.model.constraints import Tier
from webhook.core.model.node import Autoscaler
from webhook.core.model.pod import Handling, Obstacle, Resident, Stage
from webhook.core.model.policy import Policy, Pool
from webhook.core.model.policy_addons import IdleAction
from webhook.core.quota.shares import is_hidden
from webhook.core.world.world import World


class PoolProblem(NamedTuple):
    """What an admin should change of a pool, and why."""

    pool: Pool
    text: str


def autoscaling_text(world: World) -> str:
    """Return which autoscalers run and which pools grow: `Karpenter; pools that grow: cloud; others: lab`."""
    pools = world.policy.pools or (WHOLE_CLUSTER,)
    growing = [pool for pool in pools if grows(pool, world)]
    others = [pool for pool in pools if pool not in growing]
    found = " and ".join(sorted(world.autoscalers)) or "none found"
    return f"{found}; pools that grow: {_names(growing)}; others: {_names(others)}"


def autoscaling_problems(world: World) -> Iterator[PoolProblem]:
    """Yield the pools of which policy says something else than the cluster, or does not say what only it can say."""
    for pool in world.policy.pools or (WHOLE_CLUSTER,):
        nodes = gpu_nodes(pool, world)
        own = (nodes & owned(world)).bit_count()
        if pool.is_autoscaled is False and own:
            who = " or ".join(sorted(world.autoscalers))
            yield PoolProblem(
                pool,
                f"is false, although {who} owns {plural(own, 'GPU node')} of the pool: pods that are bound to "
                "nodes by name bring no other; remove the field, or set true",
            )
        is_unknown = pool.is_autoscaled is None and nodes and not own
        if is_unknown and Autoscaler.CLUSTER_AUTOSCALER in world.autoscalers:
            yield PoolProblem(
                pool,
                "is not set, Cluster Autoscaler runs, and no GPU node of the pool has a label by which node groups are "
                "known: set true if it adds nodes there, false if not" + ("" if pool.name else ", in a pool"),
            )


def _names(pools: Iterable[Pool]) -> str:
    return ", ".join(pool.name or "all nodes" for pool in pools) or "none"


# Pods that hold GPUs and do not use them, by the marks of the evictor.


NAMED: Final = 3
"""Pods that are named in a text."""


class IdlePods(NamedTuple):
    """The idle pods of one team, those that hold most first, and their GPU units."""

    team: TeamName
    pods: tuple[Resident, ...]
    gpus: Units

    @property
    def text(self) -> str:
        """The text for people: how many, and the first of them."""
        named = ", ".join(f"{pod.namespace}/{printable(pod.name)}" for pod in self.pods[:NAMED])
        more = f" and {len(self.pods) - NAMED} more" if len(self.pods) > NAMED else ""
        do = "does" if len(self.pods) == 1 else "do"
        held = f"{plural(len(self.pods), 'pod')} of team {self.team} {do} not use {plural_gpus(self.gpus)}"
        return f"{held}: {named}{more}"


def idle_pods(world: World) -> Iterator[IdlePods]:
    """Yield the idle pods of each team that has some, the teams by name; none without rules."""
    by_team: dict[TeamName, list[Resident]] = {}
    for uid in world.stages.idle if world.policy.idle is not None else ():
        pod, entry = world.pod(uid), world.entry_of(uid)
        if pod is not None and entry is not None and pod.demand.gpus:
            by_team.setdefault(entry.charge.team, []).append(pod)
    for team, pods in sorted(by_team.items()):
        pods.sort(key=lambda pod: (-pod.demand.gpus, pod.namespace, pod.name))
        yield IdlePods(team, tuple(pods), sum(pod.demand.gpus for pod in pods))


def idle_text(pod: Resident, policy: Policy) -> str:
    """Return that a pod does not use its GPUs, and what may follow; "" if it does, or nothing is known."""
    if not pod.idle_since or policy.idle is None:
        return ""
    since = datetime.fromtimestamp(pod.idle_since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    actions, borrows = policy.on_idle(pod.team_label), pod.tier is Tier.PREEMPTIBLE
    text = f"its GPUs have not been used since {since}"
    if borrows and IdleAction.PREFER in actions:
        text += "; it is evicted before borrowing pods that use theirs"
    if not borrows and IdleAction.DEMOTE in actions:
        text += "; it becomes preemptible while other pods wait"
    return text + ("; it is evicted after a notice" if IdleAction.EVICT in actions else "")


# Pods that are charged, or not, other than people expect: their stage of life says why (core/life).


_WHAT: Final = {
    Stage.STALLED: "that no node can take, for another reason than full nodes: charged, and the first to be evicted "
    "where they borrow",
    Stage.OVERDUE: "past the time that their nodes had to end them: charged until their nodes report that",
    Stage.LOST: "past their deletion deadlines on lost nodes: charged to no team",
    Stage.LINGERING: "deleted by force, which their nodes may still run: charged, as borrowed, for their grace periods",
}

_CHARGED: Final = "It is charged, and no GPUs are reserved for it"
_UNSEEN: Final = "a pod of another namespace, which users who may list all pods see here,"


class UnusualPods(NamedTuple):
    """The GPU pods of a world at one stage, by namespace and name, and what they ask for in GPU units."""

    stage: Stage
    pods: tuple[Resident, ...]
    gpus: Units

    @property
    def text(self) -> str:
        """The text for people: how many, what that means, and the first of them."""
        named = ", ".join(map(_named, self.pods[:NAMED]))
        more = f" and {len(self.pods) - NAMED} more" if len(self.pods) > NAMED else ""
        return f"{plural(len(self.pods), 'pod')} of {plural_gpus(self.gpus)} {_WHAT[self.stage]}: {named}{more}"


def unusual_pods(world: World, *, sees: Callable[[Namespace], bool] = lambda _namespace: True) -> Iterator[UnusualPods]:
    """Yield the pods of each stage at which a charge may surprise, in the namespaces that are seen; no empty stage."""
    found: dict[Stage, list[Resident]] = {stage: [] for stage in _WHAT}
    for uid, stage in world.stages.unusual.items():
        pod = world.pod(uid)
        if pod is not None and pod.demand.gpus and sees(pod.namespace):
            found[stage].append(pod)
    for stage, pods in found.items():
        if pods:
            pods.sort(key=lambda pod: (pod.namespace, pod.name))
            yield UnusualPods(stage, tuple(pods), sum(pod.demand.gpus for pod in pods))


class BypassedPod(NamedTuple):
    """A GPU pod on which the webhook did not decide when it came; `why` is how that can be."""

    pod: Resident
    team: TeamName
    why: str

    @property
    def is_missed(self) -> bool:
        """Whether Fairgate would have decided on it."""
        return _handling(self.pod) is Handling.MANAGED


_HANDLED: Final = {
    Handling.MANAGED: "when it came Fairgate was off, did not enforce or was left out, or it named its node",
    Handling.NODE_NAME: "it named its node: counted only",
    Handling.DAEMON_SET: "it is of a DaemonSet: counted only",
    Handling.MIRROR: "a kubelet runs it from a file: counted only",
    Handling.FOREIGN_SCHEDULER: "another scheduler places it: counted only",
}


def bypassed_pods(world: World, *, sees: Callable[[Namespace], bool] = lambda _namespace: True) -> list[BypassedPod]:
    """Return the GPU pods without a decision, those first that Fairgate would have placed, then by age.

    None while policy is not enforced, and none of exempt namespaces. Fairgate labels some of them later: they stay.
    """
    pods = world.pods() if world.policy.is_enforced else ()
    found = [
        BypassedPod(pod, world.tenancy(pod.namespace).team_name, _HANDLED[_handling(pod)])
        for pod in pods
        if not pod.has_decision
        and pod.demand.gpus
        and sees(pod.namespace)
        and not is_hidden(pod.namespace)
        and not world.tenancy(pod.namespace).is_exempt
        and not world.is_assumed(pod.uid)
    ]
    return sorted(
        found,
        key=lambda each: (
            not each.is_missed,
            each.pod.created,
            each.pod.namespace,
            each.pod.name,
        ),
    )


def _handling(pod: Resident) -> Handling:
    """Return who places a pod; on a node every pod looks as if it had named that."""
    is_bound = pod.handling is Handling.NODE_NAME and pod.node is not None
    return Handling.MANAGED if is_bound else pod.handling


def bypassed_text(found: Sequence[BypassedPod]) -> str:
    """Return how many pods were created past the webhook, and which command lists them; "" for none."""
    missed = [each for each in found if each.is_missed]
    if not missed:
        return ""
    gpus = plural_gpus(sum(each.pod.demand.gpus for each in missed))
    return f"{plural(len(missed), 'pod')} of {gpus} came without a decision of Fairgate: `fairgate bypassed` lists them"


def stage_text(pod: Resident, stage: Stage, world: World) -> str:
    """Return what is unusual about the stage of one pod, "" for nothing. The pods in a text are those of the world."""
    match stage:
        case Stage.STALLED if pod.unbound is not None and pod.unbound.obstacle is Obstacle.PEERS:
            found = excluders(pod, world)
            more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
            which = ", ".join(each.text for each in found[:NAMED]) + more or _UNSEEN
            why = printable(pod.unbound.why)
            return f"required anti-affinity of {which} keeps it off every node: {why}. {_CHARGED}"
        case Stage.STALLED:
            why = "" if pod.unbound is None else f": {printable(pod.unbound.why)}"
            return f"no node can take it, for another reason than full nodes{why}. {_CHARGED}"
        case Stage.OVERDUE:
            return "its node had time to end it, and has not reported that: it is charged until then"
        case Stage.LOST:
            return "it is deleted and its node is lost: it is charged to no team"
        case _:
            return ""


def left_text(namespace: str, name: str, world: World) -> str:
    """Return that a pod which is gone is still charged, "" if it is not: it was deleted by force."""
    found = (pod for pod in map(world.pod, world.stages.unusual) if pod is not None)
    left = next((pod for pod in found if (pod.namespace, pod.name) == (namespace, name)), None)
    if left is None or world.stages.of(left.uid) is not Stage.LINGERING:
        return ""
    node = f"node {left.node} may still run it" if left.node else "no kubelet had reported anything of it"
    gpus = plural_gpus(left.demand.gpus)
    return f"it was deleted by force, and {node}: it stays charged with {gpus} for its grace period"


def _named(pod: Resident) -> str:
    why = pod.node or ("" if pod.unbound is None else pod.unbound.why)
    return f"{pod.namespace}/{printable(pod.name)}" + (f" ({printable(why)})" if why else "")
