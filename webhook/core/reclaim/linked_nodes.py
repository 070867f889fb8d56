"""Nodes whose victims cannot be chosen apart: a gang, a disruption budget or a workload has victims on several."""

from collections.abc import Iterable

from webhook.core.model.names import GangId, NodeName
from webhook.core.reclaim.victim import Victim, VictimIndex

_Link = str


class LinkedNodes:
    """What links the nodes of one snapshot, found as it is asked for."""

    def __init__(self, victim_index: VictimIndex) -> None:
        self._victim_index = victim_index
        self._links: dict[NodeName, frozenset[_Link]] = {}
        self._of_gang: dict[GangId, tuple[frozenset[_Link], int]] = {}
        self._sizes: dict[NodeName, int] = {}

    def parts(self, nodes: Iterable[NodeName]) -> list[list[NodeName]]:
        """Return the nodes in parts that no link crosses."""
        parts: list[tuple[set[_Link], list[NodeName]]] = []
        for node in nodes:
            links, there = set(self._of(node)), [node]
            apart = []
            for part in parts:
                if links.isdisjoint(part[0]):
                    apart.append(part)
                else:
                    links |= part[0]
                    there = part[1] + there
            parts = [*apart, (links, there)]
        return [there for _, there in parts]

    def gangs(self, nodes: Iterable[NodeName]) -> list[GangId]:
        """Return the gangs with victims on at least two of these nodes, in the order of the nodes."""
        seen: dict[GangId, int] = {}
        for node in nodes:
            for gang in self._victim_index.gangs_on(node):
                seen[gang] = seen.get(gang, 0) + 1
        return [gang for gang, count in seen.items() if count > 1]

    def size(self, nodes: Iterable[NodeName]) -> int:
        """Return how many victims a choice on these nodes looks at."""
        return sum(self._sizes[node] for node in nodes if self._of(node) is not None)

    def _of(self, node: NodeName) -> frozenset[_Link]:
        links = self._links.get(node)
        if links is None:
            found: set[_Link] = set()
            size, node_victims = 0, self._victim_index.on(node)
            for row in () if node_victims is None else node_victims.rows.values():
                size += len(row)
                found.update(_links(row[0][1]))
            for gang in self._victim_index.gangs_on(node):
                if gang not in self._of_gang:
                    members = self._victim_index.members(gang)
                    links_of = {link for member in members for link in _links(member)}
                    self._of_gang[gang] = frozenset({*links_of, f"gang {gang}"}), len(members)
                links_of_gang, count = self._of_gang[gang]
                found |= links_of_gang
                size += count
            links = self._links[node] = frozenset(found)
            self._sizes[node] = size
        return links


def _links(victim: Victim) -> Iterable[_Link]:
    yield from (f"guard {guard}" for guard in victim.guards)
    if victim.workload is not None:
        yield f"workload {victim.workload}"
