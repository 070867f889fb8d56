"""The ways in which pods of a benchmark name their nodes: those of Fairgate's placement modes, and others beside them.

`hostname`  the one node by its hostname label, as required node affinity;
`selector`  the same as nodeSelector;
`burst`     the pods of a burst all require the nodes that hold the burst, by name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.builders import Json

BURST = 16
"""So many pods one after the other are equal. They fill whole nodes of 8 GPUs."""

_HOSTNAME = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Encoding:
    """The placement mode that makes the pods, None for no patch, and what is made of these."""

    mode: str | None
    encode: Callable[[list[Json]], list[Json]] = list


def by_hostname(pods: list[Json]) -> list[Json]:
    """Require the node by its label."""
    return [_with_terms(each, [{"matchExpressions": [_in(_HOSTNAME, node_of(each))]}]) for each in pods]


def by_selector(pods: list[Json]) -> list[Json]:
    """Select the node by its label."""
    return [_with_spec(each, {"affinity": {}, "nodeSelector": {_HOSTNAME: node_of(each)}}) for each in pods]


def by_burst(pods: list[Json]) -> list[Json]:
    """Require one of the nodes that hold the pods of a burst."""
    encoded = []
    for first in range(0, len(pods), BURST):
        burst = pods[first : first + BURST]
        terms = [{"matchFields": [_in("metadata.name", node)]} for node in dict.fromkeys(map(node_of, burst))]
        encoded += [_with_terms(each, terms) for each in burst]
    return encoded


def node_of(stored: Json) -> str:
    """Return the one node that a pod requires by its name."""
    (term,) = stored["spec"]["affinity"]["nodeAffinity"][_REQUIRED]["nodeSelectorTerms"]
    name: str = term["matchFields"][0]["values"][0]
    return name


def _in(key: str, value: str) -> Json:
    return {"key": key, "operator": "In", "values": [value]}


def _with_terms(stored: Json, terms: Sequence[Json]) -> Json:
    return _with_spec(stored, {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [*terms]}}}})


def _with_spec(stored: Json, changes: Json) -> Json:
    return {**stored, "spec": {**stored["spec"], **changes}}


ENCODINGS: Mapping[str, Encoding] = {
    "stock": Encoding(None),
    "require": Encoding("require"),
    "auto": Encoding("auto"),
    "prefer": Encoding("prefer"),
    "hostname": Encoding("require", by_hostname),
    "selector": Encoding("require", by_selector),
    "burst": Encoding("require", by_burst),
}
"""By name, as the benchmark's option has it."""
