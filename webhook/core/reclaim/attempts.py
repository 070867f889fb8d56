"""Which pods each scheduler has come to already. Pure."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Attempts:
    """How many GPU pods each scheduler placed or found no room for, and when the latest of each priority came to it.

    A pod comes when it is created, and again when its scheduler first finds no room for it: it is then behind all that
    came before. A pod that names its node itself is not among them: no scheduler had it.
    """

    count: Counter[str] = field(default_factory=Counter)
    latest: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, *, scheduler: str, priority: int, came: int) -> None:
        """Count a pod that a scheduler came to; `came` is in seconds of Unix time."""
        self.count[scheduler] += 1
        self.latest[scheduler, priority] = max(came, self.latest.get((scheduler, priority), 0))
