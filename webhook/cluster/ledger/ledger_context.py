"""What the desks of all teams have in common."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from webhook.cluster.api.client import ApiConnection
from webhook.core.world.world import World


class Recorder(Protocol):
    """Keeps count of what the ledger does."""

    def wrote(self, result: str, *, charges: int, seconds: float) -> None:
        """Record a write, how many charges it carried and how long it took."""

    def waited(self, seconds: float) -> None:
        """Record that charges had to wait for a view of the pods that was behind."""

    def withdrew(self) -> None:
        """Record a charge that is taken back because its caller had gone."""


class Means(NamedTuple):
    """What all desks share: the connection, the world, how far the view of its pods has come, and who keeps count."""

    connection: ApiConnection
    world: World
    reached: Callable[[], int]
    recorder: Recorder
