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


def held_nodes(holdings: Iterable[NodeHold], policy: Policy) -> HeldNodes:
    """Return the held nodes. A node that only waits for the rest of a broken gang to end keeps nothing."""
    is_open = policy.defaults.unknown_team is UnknownTeam.PREEMPTIBLE
    selectors = (team.namespace_selector for team in policy.teams if team.namespace_selector is not None)
    return HeldNodes(
        nodes={
            hold.node: tuple(sorted(pod.uid for pod in hold.beneficiaries)) for hold in holdings if hold.beneficiaries
        },
        namespaces=("*",) if is_open else tuple(sorted({name for team in policy.teams for name in team.namespaces})),
        selectors=() if is_open else tuple(selectors),
        exempt=tuple(sorted(policy.exempt_namespaces)),
    )
