"""What a waiting pod may override of the protections of victims, and from when on."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from webhook.core.model.amount import Unlimited
from webhook.core.model.names import TeamName
from webhook.core.reclaim.reclaim_plan import ReclaimSnapshot
from webhook.core.reclaim.reclaim_pod import ReclaimPod


class Overrides(NamedTuple):
    """Protections of victims that a pod overrides after a long wait.

    Disruption budgets, once it has waited as long as policy respects them. And the minimum runtime of pods that started
    after it began to wait (`no_minimum_after`): otherwise users who delete pods and create them again would be
    protected forever. `may_break`: failure budgets do not count, since no other choice is left: otherwise a small
    budget would always protect. Pods of the teams `outside` are not evicted, whatever is overridden.
    """

    is_past_budgets: bool = False
    no_minimum_after: int | None = None
    may_break: bool = False
    outside: frozenset[TeamName] = frozenset()


NO_OVERRIDES: Final = Overrides()


def overrides_of(waiting: ReclaimPod, snapshot: ReclaimSnapshot) -> Iterator[Overrides]:
    """Yield what a pod may override, the least first: the next is tried where nothing is found."""
    yield NO_OVERRIDES
    how = _long_wait(waiting, snapshot)
    if how is not NO_OVERRIDES:
        yield how
    if snapshot.failures:
        yield NO_OVERRIDES._replace(may_break=True)
        if how is not NO_OVERRIDES:
            yield how._replace(may_break=True)


def waits_past_budgets(waiting: ReclaimPod, snapshot: ReclaimSnapshot) -> bool:
    """Whether a pod has waited so long that no disruption budget need allow an eviction for it.

    Also where its victims are covered by none yet: their owner may create one during each notice.
    """
    since, bound = 0 if waiting.report is None else waiting.report.since, snapshot.budget_seconds
    return not isinstance(bound, Unlimited) and bool(since) and since + bound <= snapshot.now


def _long_wait(waiting: ReclaimPod, snapshot: ReclaimSnapshot) -> Overrides:
    """Return what a pod may override after its wait."""
    since = 0 if waiting.report is None else waiting.report.since
    is_past_budgets = bool(snapshot.left or snapshot.refused) and waits_past_budgets(waiting, snapshot)
    no_minimum_after = since if snapshot.minimum_runtime and since else None
    return (
        Overrides(is_past_budgets, no_minimum_after)
        if is_past_budgets or no_minimum_after is not None
        else NO_OVERRIDES
    )
