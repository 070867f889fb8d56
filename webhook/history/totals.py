"""What a meter measured since its start, as metrics."""

from collections.abc import Iterator

from webhook.core.model.policy import Policy
from webhook.history.meter import Meter, department_paths
from webhook.history.usage_row import Kind
from webhook.observe import usage_metrics
from webhook.observe.usage_metrics import UsageTotal


def totals_of(meter: Meter, policy: Policy) -> Iterator[UsageTotal]:
    """Yield the sums by team, department and model; metrics have no users."""
    paths = department_paths(policy)
    for key, amount in list(meter.totals.items()):
        where = (key.team, paths.get(key.team, ""))
        match key.kind:
            case Kind.OBSERVED:
                yield UsageTotal(usage_metrics.OBSERVED, (), amount)
            case Kind.REFUSED:
                yield UsageTotal(usage_metrics.REFUSED, where, amount)
            case Kind.REFUSED_GPUS:
                yield UsageTotal(usage_metrics.REFUSED_GPUS, where, amount)
            case _:
                yield UsageTotal(usage_metrics.GPU_SECONDS, (key.kind, *where, key.model), amount)
