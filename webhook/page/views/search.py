"""Search: pods, their owners, users and nodes by a part of their name. Pure, and bounded."""

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from webhook.core.model.amount import gpus_text
from webhook.core.world.hidden_usage import is_hidden_usage
from webhook.core.world.world import World
from webhook.page.views.viewer import Viewer

MOST: Final = 100
"""Results of one search."""

LONGEST: Final = 200
"""Characters of a query that are read."""


class Hit(NamedTuple):
    """A pod that was found, what of it matched, and where it is: on `node`, or else its `state`."""

    namespace: str
    name: str
    matched: str
    owner: str
    user: str
    team: str
    tier: str
    gpus: str
    state: str
    node: str = ""


def search(query: str, world: World, viewer: Viewer) -> list[Hit]:
    """Return the first pods that have GPUs or wait for them, and match: plain text, without regard to case."""
    wanted = query[:LONGEST].strip().lower()
    return list(islice(_hits(wanted, world, viewer), MOST)) if wanted else []


def _hits(wanted: str, world: World, viewer: Viewer) -> Iterator[Hit]:
    for waiting in world.waiting.all():
        pod = waiting.pod
        owner = f"{pod.owner.kind}/{pod.owner.name}" if pod.owner is not None else ""
        matched = _matched(wanted, f"{pod.namespace}/{pod.name}", owner, waiting.user or "", "")
        if matched and viewer.sees(pod.namespace):
            gpus = gpus_text(pod.demand.gpus)
            yield Hit(
                namespace=pod.namespace,
                name=pod.name,
                matched=matched,
                owner=owner,
                user=waiting.user or "",
                team=waiting.team,
                tier="",
                gpus=gpus,
                state="waits in line",
            )
    for resident in world.pods():
        if not resident.demand.gpus or not viewer.sees(resident.namespace) or is_hidden_usage(resident):
            continue
        owner = f"{resident.owner.kind}/{resident.owner.name}" if resident.owner is not None else ""
        node = resident.node or ""
        matched = _matched(wanted, f"{resident.namespace}/{resident.name}", owner, resident.user or "", node)
        if matched:
            charge = world.charge_of(resident.uid)
            yield Hit(
                namespace=resident.namespace,
                name=resident.name,
                matched=matched,
                owner=owner,
                user=resident.user or "",
                team=charge.team if charge is not None else "",
                tier=resident.tier_label or "",
                gpus=gpus_text(resident.demand.gpus),
                state="" if node else "waits for a node",
                node=node,
            )


def _matched(wanted: str, pod: str, owner: str, user: str, node: str) -> str:
    """Return which of the names has the text in it; "" where none has."""
    for what, name in (("pod", pod), ("owner", owner), ("user", user), ("node", node)):
        if wanted in name.lower():
            return what
    return ""
