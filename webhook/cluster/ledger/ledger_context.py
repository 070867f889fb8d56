"""What the ledger writers of all teams share."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import RestoredError
from webhook.core.model.names import TeamName
from webhook.core.world.ledger_homes import LedgerHomes
from webhook.core.world.world import World


class LedgerRecorder(Protocol):
    """Records what the ledger does, for metrics."""

    def wrote(self, result: str, *, charges: int, seconds: float) -> None:
        """Record a write, its number of charges and its duration."""

    def waited(self, seconds: float) -> None:
        """Record that charges waited for the watched pods to catch up with the ledger."""

    def withdrew(self) -> None:
        """Record a charge that is withdrawn because its caller disconnected."""


class LedgerContext(NamedTuple):
    """The connection, the world, the resourceVersion that its pods have reached, the recorder, and all ledgers.

    `wake` has the writer of another ledger write what is to be changed there; `on_restored` receives that etcd was.
    """

    connection: ApiConnection
    world: World
    reached: Callable[[], int]
    recorder: LedgerRecorder
    homes: LedgerHomes
    wake: Callable[[TeamName], None]
    on_restored: Callable[[RestoredError], None]
