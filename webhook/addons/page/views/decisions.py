"""Views of decisions, and the search.

The stream of decisions: from the annotation of each pod, and from the Events of Fairgate. Pure, and bounded.
"""

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, Final, NamedTuple

from webhook.addons.page.views.teams import Viewer
from webhook.core.model.amounts import gpus_text, printable, shortened
from webhook.core.model.decision import DecisionAnnotation, read
from webhook.core.world.hidden_usage import is_hidden_usage
from webhook.core.world.world import World
from webhook.kube.kinds.model import listed, mapping, text
from webhook.kube.objects import keys
from webhook.kube.pod.pods import unix_seconds
from webhook.kube.pod.waiting import read_waits, waiting_text

KEPT: Final = 4_000
"""Decisions that are kept, the newest."""

KEPT_OF_NAMESPACE: Final = 1_000
"""Of one namespace: one in which pods are created and deleted without end does not push out the decisions of others."""

_LONGEST: Final = 1_024
_MOST_DIGITS: Final = 9
_SLACK: Final = 64

KINDS: Final = {
    "Queued": "queued",
    "Refused": "refused",
    "PolicyRefused": "refused",
    "Promoted": "promoted",
    "Demoted": "demoted",
    "Adopted": "adopted",
    "BypassedAdmission": "bypassed",
    "NoRoomNow": "waits for room",
    "NeverFits": "never fits",
    "Reclaiming": "reclaims",
    "CannotReclaim": "cannot reclaim",
    "EvictionPlanned": "eviction planned",
    "EvictionCancelled": "eviction cancelled",
    "EvictionRefused": "eviction refused",
    "Reclaimed": "evicted",
    "NodeLost": "node lost",
    "Replaced": "replaced",
    "Stranded": "stranded",
}
"""The reasons of Events in words."""

_EVENT: Final = "event/"
ADMITTED: Final = "admitted"
QUEUED: Final = "queued"


class Decision(NamedTuple):
    """One decision. `at` is in seconds of Unix time; `about` is a kind and a name; `text` has the sums."""

    at: int
    key: str
    kind: str
    namespace: str
    about: str
    team: str
    tier: str
    gpus: str
    code: str
    text: str
    times: int = 1


class _Oldest:
    """Finds the oldest of some decisions. Those that were replaced stay in the heap until they come up."""

    def __init__(self, kept: Mapping[str, Decision]) -> None:
        self.count = 0
        self._kept = kept
        self._heap: list[Decision] = []

    def add(self, decision: Decision) -> None:
        """Add a decision that is kept."""
        self.count += 1
        if len(self._heap) > 2 * self.count + _SLACK:
            self._heap = [each for each in self._heap if self._is_kept(each)]
            heapify(self._heap)
        heappush(self._heap, decision)

    def pop(self) -> Decision:
        """Take the oldest out."""
        while not self._is_kept(found := heappop(self._heap)):
            pass
        return found

    def _is_kept(self, decision: Decision) -> bool:
        return self._kept.get(decision.key) is decision


class DecisionLog:
    """The newest decisions, each once: one that is seen again replaces what was seen of it."""

    def __init__(self) -> None:
        self._kept: dict[str, Decision] = {}
        self._oldest = _Oldest(self._kept)
        self._of_namespace: dict[str, _Oldest] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, decision: Decision) -> bool:
        """Add a decision; return whether that changed anything."""
        before = self._kept.get(decision.key)
        if before == decision:
            return False
        if before is not None:
            self._drop(before)
        own = self._of_namespace.get(decision.namespace)
        if own is None:
            own = self._of_namespace[decision.namespace] = _Oldest(self._kept)
        self._kept[decision.key] = decision
        self._oldest.add(decision)
        own.add(decision)
        if own.count > KEPT_OF_NAMESPACE:
            self._drop(own.pop())
        elif self._oldest.count > KEPT:
            self._drop(self._oldest.pop())
        return decision.key in self._kept

    def _drop(self, decision: Decision) -> None:
        del self._kept[decision.key]
        self._oldest.count -= 1
        own = self._of_namespace[decision.namespace]
        own.count -= 1
        if not own.count:
            del self._of_namespace[decision.namespace]

    def newest(self, viewer: Viewer, *, words: str = "", kind: str = "") -> Iterator[Decision]:
        """Yield what a viewer may see, the newest first: of one kind, and with all of these words."""
        wanted = words.lower().split()
        for decision in sorted(self._kept.values(), reverse=True):
            if not _is_seen(decision, viewer) or (kind and decision.kind != kind):
                continue
            if wanted:
                whole = " ".join(map(str, decision[2:-1])).lower()
                if not all(word in whole for word in wanted):
                    continue
            yield decision

    def kinds(self, viewer: Viewer) -> list[str]:
        """Return the kinds that occur in what a viewer may see, by name."""
        return sorted({each.kind for each in self._kept.values() if _is_seen(each, viewer)})


def _is_seen(decision: Decision, viewer: Viewer) -> bool:
    """Whether a viewer may read what a decision was read from: a pod, or an Event."""
    is_event = decision.key.startswith(_EVENT)
    return viewer.sees_events(decision.namespace) if is_event else viewer.sees(decision.namespace)


def of_pod(pod: Mapping[str, Any]) -> Decision | None:
    """Return the admission of a pod by its annotation; None where it has none."""
    metadata = mapping(pod.get("metadata"))
    written = text(mapping(metadata.get("annotations")).get(keys.DECISION))
    if not written or (found := read(written)) is None:
        return None
    labels = mapping(metadata.get("labels"))
    uid, namespace, name = text(metadata.get("uid")), text(metadata.get("namespace")), text(metadata.get("name"))
    gates = listed(mapping(pod.get("spec")).get("schedulingGates"))
    is_queued = any(mapping(gate).get("name") == keys.QUEUE_GATE for gate in gates)
    return Decision(
        at=unix_seconds(found.at),
        key=f"pod/{uid or f'{namespace}/{name}'}",
        kind=QUEUED if is_queued else ADMITTED,
        namespace=namespace,
        about=f"Pod {name}",
        team=text(labels.get(keys.TEAM)),
        tier=text(labels.get(keys.TIER)),
        gpus=_short(found.gpus),
        code=_short(found.code),
        text=_short(_sums(found, _waits(metadata) if is_queued else _place(pod, found))),
    )


def _waits(metadata: Mapping[str, Any]) -> str:
    annotations = {key: text(value) for key, value in mapping(metadata.get("annotations")).items()}
    waits = read_waits(annotations)
    return f"in line: {waiting_text(annotations)}" if waits is None else f"wait: {waits.reason.text}"


def _place(pod: Mapping[str, Any], found: DecisionAnnotation) -> str:
    node = text(mapping(pod.get("spec")).get("nodeName"))
    if node:
        return f"on node {node}"
    return f"sent to {', '.join(found.nodes[:3])}" if found.nodes else "on no node yet"


def _sums(found: DecisionAnnotation, state: str) -> str:
    unit = "GPU" if found.gpus == "1" else "GPUs"
    pool = f", pool {found.pool}" if found.pool else ""
    user = f", user {found.user}" if found.user else ""
    return f"{found.gpus} {unit} {state}{pool}{user}; policy {found.policy}"


def of_event(event: Mapping[str, Any]) -> Decision | None:
    """Return the decision that an Event of Fairgate reports; None for any other Event."""
    source = text(mapping(event.get("source")).get("component"))
    reason = text(event.get("reason"))
    if not source.startswith("fairgate") or reason not in KINDS:
        return None
    metadata, about = mapping(event.get("metadata")), mapping(event.get("involvedObject"))
    at = text(event.get("lastTimestamp")) or text(metadata.get("creationTimestamp"))
    count = event.get("count")
    return Decision(
        at=unix_seconds(at),
        key=f"{_EVENT}{text(metadata.get('namespace'))}/{text(metadata.get('name'))}",
        kind=KINDS[reason],
        namespace=text(metadata.get("namespace")),
        about=_short(f"{text(about.get('kind'))} {text(about.get('name'))}"),
        team="",
        tier="",
        gpus="",
        code=reason,
        text=_short(text(event.get("message"))),
        times=min(count, 10**_MOST_DIGITS) if isinstance(count, int) else 1,
    )


def _short(found: str) -> str:
    """Return a text that anyone may have written, on one line and of a bounded length."""
    return shortened(printable(found), _LONGEST)


# Search: pods, their owners, users and nodes by a part of their name. Pure, and bounded.


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
