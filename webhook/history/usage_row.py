"""The rows of recorded usage: what was held, awaited, free or refused in one interval, by team, user and GPU model.

A row is a whole amount, never a difference: writing it twice changes nothing.
"""

from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple

from webhook.core.explain.job_waits import BOUNDS, SIZES, Start, bound_of

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

    HELD_GUARANTEED and HELD_PREEMPTIBLE are GPUs of pods on nodes, HELD_IDLE those of them that are not used. WAITING
    are GPUs of pods that exist and have no node. UNUSED is a team's guaranteed share beyond what its guaranteed pods
    hold.
    FREE are free GPUs of schedulable nodes, by model. REFUSED are requests, REFUSED_GPUS what they asked for, in GPUs.
    OBSERVED are seconds in which the recorder saw the cluster's events as they came. The USE kinds are the amounts of
    ClusterUse, times seconds. STARTED are jobs that started, by the class of their size and the group of their wait.
    LOST is work of evicted pods that is done again, MOVED that of pods that were moved to make room, SAVED work that
    would be, had they not saved it after their warning.
    """

    HELD_GUARANTEED = "guaranteed"
    HELD_PREEMPTIBLE = "preemptible"
    HELD_IDLE = "held_idle"
    WAITING = "waiting"
    UNUSED = "unused"
    FREE = "free"
    REFUSED = "refused"
    REFUSED_GPUS = "refused_gpus"
    OBSERVED = "observed"
    USE_GPUS = "use_gpus"
    USE_HELD = "use_held"
    USE_NODES = "use_nodes"
    USE_PARTLY = "use_partly"
    USE_SPREAD = "use_spread"
    USE_BEYOND = "use_beyond"
    STARTED = "started"
    LOST = "lost"
    MOVED = "moved"
    SAVED = "saved"


OF_USE: Final = (
    UsageKind.USE_GPUS,
    UsageKind.USE_HELD,
    UsageKind.USE_NODES,
    UsageKind.USE_PARTLY,
    UsageKind.USE_SPREAD,
    UsageKind.USE_BEYOND,
)
"""The kinds of ClusterUse's amounts, in its order."""


OF_EVICTIONS: Final = (UsageKind.LOST, UsageKind.MOVED, UsageKind.SAVED)
"""The kinds that are known once an evicted pod has ended, and count in the interval of its end."""


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


def started_key(start: Start) -> UsageKey:
    """Return what a job that started counts to: its class and group are in the place of the model."""
    return UsageKey(UsageKind.STARTED, model=f"{start.size}/{bound_of(start.wait):g}")


def group_of(key: UsageKey) -> tuple[str, float] | None:
    """Return the class of size and the upper bound of the waits that such a key counts; None where it names none."""
    return _GROUPS.get(key.model)


_GROUPS: Final = {f"{size}/{bound:g}": (size, bound) for size in SIZES for bound in BOUNDS}


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
