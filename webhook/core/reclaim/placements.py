"""What each scheduler has placed: which pods it came to already. Pure."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Placements:
    """How many GPU pods each scheduler placed since the watch began, and when the newest of each priority was created.

    A pod that names its node itself is not among them: no scheduler had it.
    """

    count: Counter[str] = field(default_factory=Counter)
    newest: dict[tuple[str, int], float] = field(default_factory=dict)

    def add(self, *, scheduler: str, priority: int, created: int) -> None:
        """Count a pod that waited and has a node now; `created` is in seconds of Unix time."""
        self.count[scheduler] += 1
        self.newest[scheduler, priority] = max(created, self.newest.get((scheduler, priority), 0))
