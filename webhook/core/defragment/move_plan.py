"""The result of a search for moves: which pods go where, what that costs, and for which pods it makes room."""

from enum import StrEnum
from typing import Final, NamedTuple

from webhook.core.defragment.movable_pod import MovablePod
from webhook.core.model.amount import Units
from webhook.core.model.demand import Demand
from webhook.core.model.domain_request import DomainRequest
from webhook.core.model.names import NodeName, TeamName, Uid


class NoMoves(StrEnum):
    """Why no moves are planned for a pod."""

    FITS = "Fits"
    NO_NODE = "NoNode"
    TOO_FEW_FREE = "TooFewFree"
    NOT_ENOUGH_MOVABLE = "NotEnoughMovable"
    TOO_MUCH_WORK = "TooMuchWork"
    NO_DOMAIN = "NoDomain"


WHY_NO_MOVES: Final = {
    NoMoves.FITS: "a node has room for it now",
    NoMoves.NO_NODE: "no open node that it may use could hold it, even without other pods",
    NoMoves.TOO_FEW_FREE: "fewer GPUs are free on all nodes together than it asks for",
    NoMoves.NOT_ENOUGH_MOVABLE: "the pods that may be moved, and the free GPUs elsewhere, do not make enough room on "
    "any one node",
    NoMoves.TOO_MUCH_WORK: "the search was ended before it found moves that make enough room on one node",
    NoMoves.NO_DOMAIN: "no moves make room for the whole gang in one domain, as it requires",
}
"""The same for people."""


class Target(NamedTuple):
    """A pod that room is sought for: `slots` are the nodes that it may use, full or not.

    `since` is when it began to wait, in seconds of Unix time; 0 for a pod that does not exist. `domain` is what its
    gang asks for.
    """

    name: str
    team: TeamName
    demand: Demand
    slots: int
    since: int = 0
    gang: str = ""
    domain: DomainRequest | None = None

    @property
    def uid(self) -> Uid:
        """What stands for its UID where its room is taken."""
        return Uid(f"room for {self.name}")


class Move(NamedTuple):
    """A pod that leaves its node, and a node that has room for its replacement. `lost_work` is in GPU units·seconds."""

    pod: MovablePod
    to: NodeName
    lost_work: Units


class Moves(NamedTuple):
    """The moves that make room for a pod on a node; none where it fits there already.

    `is_cheapest`: no other moves cost less. Otherwise the search was ended after its bound of work.
    """

    target: Target
    node: NodeName
    moves: tuple[Move, ...] = ()
    is_cheapest: bool = True

    @property
    def lost_work(self) -> Units:
        """What is done again, in GPU units times seconds."""
        return sum(move.lost_work for move in self.moves)


class Room(NamedTuple):
    """Room for a pod, or for the pods of a gang, in their order."""

    places: tuple[Moves, ...]

    @property
    def moves(self) -> tuple[Move, ...]:
        """All moves, in the order in which they are possible."""
        return tuple([move for place in self.places for move in place.moves])

    @property
    def lost_work(self) -> Units:
        """What is done again, in GPU units times seconds."""
        return sum(place.lost_work for place in self.places)

    def waited(self, now: int) -> Units:
        """Return for how long these GPUs were waited for, in GPU units times seconds."""
        return sum(
            place.target.demand.gpus * max(0, now - place.target.since) for place in self.places if place.target.since
        )


class NotPlanned(NamedTuple):
    """Pods that wait together and for which no moves are planned."""

    targets: tuple[Target, ...]
    cause: NoMoves
