"""The rows of recorded usage: what was held, awaited, free or refused in one interval, by team, user and GPU model.

A row is a whole amount, never a difference: writing it twice changes nothing.
"""

from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple

INTERVAL_SECONDS: Final = 300
"""Length of an interval. Its rows are written again until it is over."""

MAX_USERS: Final = 50
"""Users of a team with rows of their own in one interval: a tenant may have any number of ServiceAccounts."""
OTHERS: Final = "others"
"""The user of the row for all further users."""

MAX_TEXT: Final = 200
"""Characters of a stored name. User names have no limit in Kubernetes."""
_DIGEST: Final = 8


class UsageKind(StrEnum):
    """What a row counts. GPU-seconds, unless it says otherwise.

    HELD_GUARANTEED and HELD_BORROWED are GPUs of pods on nodes. WAITING are GPUs of pods that exist and have no node.
    UNUSED is a team's guaranteed share beyond what its guaranteed pods hold. FREE are free GPUs of schedulable nodes,
    by model. REFUSED are requests, REFUSED_GPUS what they asked for, in GPUs. OBSERVED are seconds in which the
    recorder saw the cluster's events as they came.
    """

    HELD_GUARANTEED = "guaranteed"
    HELD_BORROWED = "borrowed"
    WAITING = "waiting"
    UNUSED = "unused"
    FREE = "free"
    REFUSED = "refused"
    REFUSED_GPUS = "refused_gpus"
    OBSERVED = "observed"


class UsageKey(NamedTuple):
    """What an amount belongs to; "" where a field does not apply."""

    kind: UsageKind
    team: str = ""
    user: str = ""
    model: str = ""


class UsageRow(NamedTuple):
    """An amount of one interval. `start` is Unix time; `department` the path of the team's departments, by `/`."""

    start: int
    key: UsageKey
    amount: float
    department: str = ""


class Recording(NamedTuple):
    """What one recorder saw: `name` is its file or replica."""

    name: str
    rows: tuple[UsageRow, ...]


def interval_of(time: float) -> int:
    """Return the start of the interval that a time is in."""
    return int(time // INTERVAL_SECONDS) * INTERVAL_SECONDS


def bounded(text: str, longest: int = MAX_TEXT) -> str:
    """Return a text of bounded length; a longer one keeps its beginning, and a digest that tells it from others."""
    if not text.isascii():
        text = text.encode(errors="replace").decode()  # half a character, as JSON may have, fits no file
    if len(text) <= longest:
        return text
    digest = sha256(text.encode()).hexdigest()[:_DIGEST]
    return f"{text[: longest - _DIGEST - 1]}~{digest}"
