"""What kube-scheduler has placed: which pods it came to already. Pure."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Placements:
    """How many GPU pods were placed since the watch began, and for each priority when the newest of them was created.

    A pod that names its node itself is not among them: kube-scheduler never had it.
    """

    count: int = 0
    newest: dict[int, int] = field(default_factory=dict)

    def add(self, *, priority: int, created: int) -> None:
        """Count a pod that waited and has a node now; `created` is in seconds of Unix time."""
        self.count += 1
        self.newest[priority] = max(created, self.newest.get(priority, 0))
