"""Nodes whose victims cannot be chosen apart: a gang, a disruption budget or a workload has victims on several."""

from collections.abc import Iterable

from webhook.core.model.names import GangId, NodeName
from webhook.core.reclaim.victim import Victim, VictimIndex

_Link = str


class LinkedNodes:
    """What links the nodes of one snapshot, found as it is asked for."""

    def __init__(self, victim_index: VictimIndex) -> None:
        self._victim_index = victim_index
        self._links: dict[NodeName, set[_Link]] = {}
        self._of_gang: dict[GangId, set[_Link]] = {}

    def parts(self, nodes: Iterable[NodeName]) -> list[list[NodeName]]:
        """Return the nodes in parts that no link crosses."""
        parts: list[tuple[set[_Link], list[NodeName]]] = []
        for node in nodes:
            links, there = self._of(node), [node]
            apart = []
            for part in parts:
                if links.isdisjoint(part[0]):
                    apart.append(part)
                else:
                    links, there = links | part[0], part[1] + there
            parts = [*apart, (links, there)]
        return [there for _, there in parts]

    def gangs(self, nodes: Iterable[NodeName]) -> list[GangId]:
        """Return the gangs with victims on at least two of these nodes, in the order of the nodes."""
        seen: dict[GangId, int] = {}
        for node in nodes:
            for gang in self._victim_index.gangs_on(node):
                seen[gang] = seen.get(gang, 0) + 1
        return [gang for gang, count in seen.items() if count > 1]

    def _of(self, node: NodeName) -> set[_Link]:
        links = self._links.get(node)
        if links is None:
            node_victims = self._victim_index.on(node)
            rows = () if node_victims is None else node_victims.rows.values()
            links = self._links[node] = {link for row in rows for link in _links(row[0][1])}  # equal in all of a row
            for gang in self._victim_index.gangs_on(node):
                if gang not in self._of_gang:
                    members = self._victim_index.members(gang)
                    self._of_gang[gang] = {f"gang {gang}", *(link for each in members for link in _links(each))}
                links |= self._of_gang[gang]
        return links


def _links(victim: Victim) -> Iterable[_Link]:
    yield from (f"guard {guard}" for guard in victim.guards)
    if victim.workload is not None:
        yield f"workload {victim.workload}"
