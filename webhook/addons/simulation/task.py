"""A pod that comes during a simulation, what the simulation assumes of pods, and what came of each of them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from webhook.core.model.amounts import NodeName, TeamName, User
from webhook.core.model.constraints import Tier
from webhook.core.model.pod import Pod
from webhook.core.model.reasons import Reason


class Task(NamedTuple):
    """A pod to create. Times are in seconds: `created` of Unix time, `seconds` is how long it runs once it has started.

    `seconds` is None for a pod that runs to the end of the simulation. `team` is for the sums of a report; the decision
    reads the namespace. The members of a gang run until the last of them has run for its time.
    """

    name: str
    pod: Pod
    team: TeamName
    created: int
    seconds: int | None
    user: User | None = None
    priority: int = 0


class Refusals(StrEnum):
    """What comes of a pod that is refused for a limit or for room: its controller creates it again, or it is lost."""

    RETRY = "retry"
    LOSE = "lose"


class Evictions(StrEnum):
    """What comes of a pod that is evicted: its controller creates it again, or it is lost."""

    RESTART = "restart"
    LOSE = "lose"


class MovedTiers(StrEnum):
    """Which pods are moved to make room for waiting ones: none, preemptible ones, or guaranteed ones as well.

    POLICY: preemptible ones, if the policy has them moved on demand.
    """

    NONE = "none"
    POLICY = "policy"
    PREEMPTIBLE = "preemptible"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Settings:
    """What is assumed of pods and their controllers. Work is saved every `checkpoint_seconds` of a run; 0: never.

    Without `has_evictor` nothing is taken back from borrowing pods. `moved` pods are moved as moves.py says.
    """

    refusals: Refusals = Refusals.RETRY
    evictions: Evictions = Evictions.RESTART
    checkpoint_seconds: int = 0
    has_evictor: bool = True
    moved: MovedTiers = MovedTiers.NONE


DEFAULT_SETTINGS: Final = Settings()


class TaskState(StrEnum):
    """What came of a task: it ended, runs or waits still, was refused for good, or was evicted for good."""

    ENDED = "ended"
    RUNNING = "running"
    WAITING = "waiting"
    REFUSED = "refused"
    EVICTED = "evicted"


@dataclass(slots=True)
class TaskRecord:
    """What came of one task. `started` is its first start, None before; `tier` and `node` are those of that start.

    `refused` are the reasons of its last refusal. `lost_seconds` is the work that its evictions lost, `saved_seconds`
    what its checkpoints kept of it.
    """

    task: Task
    state: TaskState = TaskState.WAITING
    started: int | None = None
    ended: int | None = None
    tier: Tier | None = None
    node: NodeName | None = None
    evictions: int = 0
    lost_seconds: int = 0
    saved_seconds: int = 0
    refusals: int = 0
    refused: tuple[Reason, ...] = ()

    @property
    def wait_seconds(self) -> int | None:
        """How long it waited for its first start; None while it has not started."""
        return None if self.started is None else self.started - self.task.created


class Eviction(NamedTuple):
    """A pod that was evicted; `record` is None for one that was there from the beginning."""

    at: int
    name: str
    record: TaskRecord | None
