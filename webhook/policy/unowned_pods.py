"""GPU pods of namespaces of no team: which of them would be refused, and which are exempt by default."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import filterfalse
from typing import Final

from webhook.core.model.names import Namespace
from webhook.core.model.policy import Policy, UnknownTeam
from webhook.core.model.text import plural
from webhook.core.quota.team import is_exempt_by_default
from webhook.core.world.hidden_usage import is_hidden_usage
from webhook.core.world.world import World
from webhook.policy.offered_devices import listed

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
