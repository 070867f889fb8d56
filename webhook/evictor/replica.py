"""What one evictor reports of itself: policy, watches and leadership."""

from collections.abc import Callable
from dataclasses import dataclass

from webhook import __version__
from webhook.cluster.writes.lease import Lease
from webhook.kube.ledger.reports import ReplicaReport, shortened
from webhook.observe.process import Component
from webhook.policy.watch import PolicyHolder


@dataclass(frozen=True, slots=True)
class EvictorState:
    """The sources of an evictor's report."""

    holder: PolicyHolder
    lease: Lease
    why_not_ready: Callable[[], str | None]
    unevictable: Callable[[], list[str]]
    unserved: Callable[[], list[str]]
    moving: Callable[[], str]
    idle_problem: Callable[[], str]
    notify_problems: Callable[[], list[str]]
    left_out: Callable[[], list[str]]

    def report(self, at: str) -> ReplicaReport:
        """Return the evictor's state now; `at` is the time of day."""
        policy, why = self.holder.current, self.why_not_ready()
        return ReplicaReport(
            component=Component.EVICTOR,
            at=at,
            version=__version__,
            policy=policy.hash,
            enforce=policy.enforce.value,
            policy_problem=shortened(self.holder.problem or ""),
            leading=self.lease.is_leading,
            election=shortened(self.lease.problem or ""),
            not_ready=[shortened(f"world: {why}")] if why else [],
            unevictable=[shortened(text) for text in self.unevictable()],
            unserved=[shortened(text) for text in self.unserved()],
            moving=shortened(self.moving()),
            idle_problem=shortened(self.idle_problem()),
            notify=[shortened(text) for text in self.notify_problems()],
            left_out=self.left_out(),
        )
