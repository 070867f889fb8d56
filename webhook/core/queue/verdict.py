"""What the caller says about an entry: it starts now, or what it waits for. The queue knows no limits and no nodes."""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from webhook.core.model.names import NodeName


class Way(StrEnum):
    """How an entry starts: in its turn, or as back-fill, ahead of entries that wait for room."""

    IN_TURN = "inTurn"
    BACKFILL = "backfill"


class Attempt(NamedTuple):
    """How a start is tried: off the nodes that are `kept` for others; `before` are those that were kept for it."""

    way: Way = Way.IN_TURN
    kept: frozenset[NodeName] = frozenset()
    before: frozenset[NodeName] = frozenset()


IN_TURN: Final = Attempt()


@dataclass(frozen=True, slots=True)
class Fits:
    """It starts now: nodes have room, or (only in its turn) reclaim makes it by evicting preemptible pods."""


@dataclass(frozen=True, slots=True)
class OverLimit:
    """Other pods use up a limit, of which this is the key among the entry's `limits`."""

    limit: Hashable


@dataclass(frozen=True, slots=True)
class NoRoom:
    """No nodes have room, and reclaim cannot make it now. `reach` are the nodes that it may ever use, None for all.

    `keep` are nodes that back-fill must leave alone for it (`kept_nodes`). It is empty where reclaim takes room from
    back-fill for it: then back-fill may have every node. `has_devices`: one of its nodes has the GPUs free that it asks
    for, and lacks something else.
    """

    keep: frozenset[NodeName] = frozenset()
    reach: frozenset[NodeName] | None = None
    has_devices: bool = False


@dataclass(frozen=True, slots=True)
class Never:
    """It cannot start whatever ends, such as after a limit was lowered: it holds up no other entry."""


@dataclass(frozen=True, slots=True)
class Paced:
    """Reclaim takes room back for many pods of its team already: it and those like it follow, and hold up no other."""


Verdict = Fits | OverLimit | NoRoom | Paced | Never
