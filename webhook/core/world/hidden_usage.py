"""Pods that a viewer may not list: of a world without names, and charges by the sums of the teams' ledgers."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from webhook.core.model.amounts import Namespace, NodeName, TeamName, Uid, Units
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.model.demand import Demand
from webhook.core.model.pod import Resident
from webhook.core.quota.charges import InFlightCharge
from webhook.core.quota.shares import HIDDEN, is_hidden
from webhook.core.world.listed_charges import assume_charges
from webhook.core.world.world import World

ANY: Final = HIDDEN
"""Namespace, name and node of the placeholder for pods that are not shown."""

_PREFIX: Final = "unseen/"


class Totals(NamedTuple):
    """The charges of a team, in GPU units: in total, as preemptible, and on no node yet."""

    team: TeamName
    total: Units
    preemptible: Units
    waiting: Units


class Nameless(Protocol):
    """A cluster without the names of pods, namespaces and users, as the leader publishes it for viewers."""

    @property
    def autoscalers(self) -> Collection[str]:
        """The autoscalers of the cluster."""
        ...

    @property
    def without_pods(self) -> "Nameless":
        """The same without pods."""
        ...

    def fill(self, world: World) -> None:
        """Add what a world does not have. Raises ValueError where it cannot be used."""
        ...


class Unnamed(NamedTuple):
    """What stands for the pods and nodes that a viewer may not list: the sums of teams, and a world without names.

    `charges` are those that ledgers list, None where these may not be read.
    """

    totals: tuple[Totals, ...] = ()
    world: Nameless | None = None
    charges: tuple[InFlightCharge, ...] | None = ()

    def fill(self, world: World) -> None:
        """Add it to a world with all that the viewer may list. Raises ValueError as Nameless.fill does.

        The sums are newer than the world without names: its pods beyond them have ended since, or have a name by now.
        """
        assume_charges(world, self.charges)
        if self.world is not None:
            self.world.fill(world)
            for each in self.totals:
                _remove_ended(each, world)
        add_hidden_usage(world, self.totals)


NOTHING: Final = Unnamed()
"""Nothing is missing."""


def add_hidden_usage(world: World, totals: Iterable[Totals]) -> None:
    """Charge each team the part of its sums not covered by the pods of the world; GPU models and users are unknown."""
    for each in totals:
        for flight in _missing(each, world):
            world.add_pod(flight)


def _remove_ended(totals: Totals, world: World) -> None:
    """Remove pods without a name of a team, the oldest first, as long as it holds more than its sum says."""
    beyond = world.usage(totals.team).total - totals.total
    hidden = [pod for pod in world.pods() if is_hidden_usage(pod) and pod.team_label == totals.team]
    for pod in sorted(hidden, key=lambda pod: (pod.created, pod.uid)) if beyond > 0 else ():
        charge = world.charge_of(pod.uid)
        if charge is not None and 0 < charge.gpus <= beyond:
            world.remove_pod(pod.uid)
            beyond -= charge.gpus


def is_hidden_usage(pod: Resident) -> bool:
    """Whether it stands for pods that are not shown."""
    return is_hidden(pod.namespace)


def _missing(totals: Totals, world: World) -> Iterator[InFlightCharge]:
    usage = world.usage(totals.team)
    missing = max(0, totals.total - usage.total)  # tiers may have changed since either was read
    borrowed = min(missing, max(0, totals.preemptible - usage.preemptible))
    left = {Tier.PREEMPTIBLE: borrowed, Tier.GUARANTEED: missing - borrowed}
    waiting = max(0, totals.waiting - usage.waiting)
    for tier, gpus in left.items():
        on_none = min(waiting, max(0, gpus))
        waiting -= on_none
        if on_none:
            yield _flight(totals.team, tier, on_none, None)
        if gpus > on_none:
            yield _flight(totals.team, tier, gpus - on_none, NodeName(ANY))


def _flight(team: TeamName, tier: Tier, gpus: Units, node: NodeName | None) -> InFlightCharge:
    uid = Uid(f"{_PREFIX}{team}/{tier.value}/{node or ''}")
    pod = Resident(
        uid=uid,
        namespace=Namespace(ANY),
        name=ANY,
        demand=Demand(gpus, (), ()),
        node=node,
        owner=None,
        team_label=team,
        tier_label=tier.value,
    )
    return InFlightCharge(pod, Charge(team, tier, gpus), node)
