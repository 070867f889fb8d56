"""The held nodes, the pods that they are held for, and the namespaces whose other pods are kept off."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from webhook.core.model.names import NodeName, Uid
from webhook.core.model.policy import LabelSelector, Policy, UnknownTeam
from webhook.core.reclaim.reservation import NodeHold


@dataclass(frozen=True, slots=True)
class HeldNodes:
    """The nodes, each with the pods that it keeps its room for, and the namespaces whose pods are kept off otherwise.

    `namespaces` and `exempt` are names or globs; exempt namespaces are never kept off.
    """

    nodes: Mapping[NodeName, tuple[Uid, ...]]
    namespaces: tuple[str, ...]
    selectors: tuple[LabelSelector, ...]
    exempt: tuple[str, ...]

    def covers(self, later: "HeldNodes") -> bool:
        """Whether it keeps off the same pods as a later state: pods that were bound or deleted since may stay in it."""
        return (
            self.nodes.keys() == later.nodes.keys()
            and (self.namespaces, self.selectors, self.exempt) == (later.namespaces, later.selectors, later.exempt)
            and all(set(uids) <= set(self.nodes[node]) for node, uids in later.nodes.items())
        )


def held_nodes(node_holds: Iterable[NodeHold], policy: Policy) -> HeldNodes:
    """Return the held nodes. A node that only waits for the rest of a broken gang to end keeps nothing."""
    is_open = policy.defaults.unknown_team is UnknownTeam.PREEMPTIBLE
    selectors = (team.namespace_selector for team in policy.teams if team.namespace_selector is not None)
    return HeldNodes(
        nodes={
            hold.node: tuple(sorted(pod.uid for pod in hold.beneficiaries)) for hold in node_holds if hold.keeps_room
        },
        namespaces=("*",) if is_open else tuple(sorted({name for team in policy.teams for name in team.namespaces})),
        selectors=() if is_open else tuple(selectors),
        exempt=tuple(sorted(policy.exempt)),
    )
