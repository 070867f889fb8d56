"""Pods that are charged, or not, other than people expect: their stage of life says why (core/life)."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from webhook.core.explain.candidates import excluders
from webhook.core.life.pod_life import Stage
from webhook.core.model.amount import Units
from webhook.core.model.pod import Obstacle, Resident
from webhook.core.model.text import plural, plural_gpus, printable
from webhook.core.world.world import World

NAMED: Final = 3
"""Pods of a stage that are named in a text."""

_WHAT: Final = {
    Stage.STALLED: "kept off every node by something else than room: charged, without room, and the first to go where "
    "they borrow",
    Stage.OVERDUE: "past the time that their nodes had to end them: charged until their nodes report that",
    Stage.LOST: "past their deletion deadlines on lost nodes: charged to no team",
}

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


def unusual_pods(world: World) -> Iterator[UnusualPods]:
    """Yield the pods of each stage at which a charge may surprise, the stages without any left out."""
    found: dict[Stage, list[Resident]] = {stage: [] for stage in _WHAT}
    for uid, stage in world.stages.unusual.items():
        pod = world.pod(uid)
        if pod is not None and pod.demand.gpus:
            found[stage].append(pod)
    for stage, pods in found.items():
        if pods:
            pods.sort(key=lambda pod: (pod.namespace, pod.name))
            yield UnusualPods(stage, tuple(pods), sum(pod.demand.gpus for pod in pods))


def stage_text(pod: Resident, stage: Stage, world: World) -> str:
    """Return what is unusual about the stage of one pod, "" for nothing. The pods in a text are those of the world."""
    match stage:
        case Stage.STALLED if pod.unbound is not None and pod.unbound.obstacle is Obstacle.PEERS:
            found = excluders(pod, world)
            more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
            which = ", ".join(each.text for each in found[:NAMED]) + more or _UNSEEN
            why = printable(pod.unbound.why)
            return f"required anti-affinity of {which} keeps it off every node: {why}. It is charged and keeps no room"
        case Stage.STALLED:
            why = "" if pod.unbound is None else f": {printable(pod.unbound.why)}"
            return f"something else than room keeps it off every node{why}. It is charged and keeps no room"
        case Stage.OVERDUE:
            return "its node had time to end it, and has not reported that: it is charged until then"
        case Stage.LOST:
            return "it is deleted and its node is lost: it is charged to no team"
        case _:
            return ""


def _named(pod: Resident) -> str:
    why = pod.node or ("" if pod.unbound is None else pod.unbound.why)
    return f"{pod.namespace}/{printable(pod.name)}" + (f" ({printable(why)})" if why else "")
