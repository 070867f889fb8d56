"""Writes Events on the nodes that reject pods, once each time a node is closed to a team."""

from collections.abc import Iterator
from datetime import UTC, datetime

from webhook.core.model.names import NodeName, TeamName
from webhook.core.placement.rejecting_nodes import ClosedNode
from webhook.kube.objects.events import Event, EventReason, ObjectRef
from webhook.server.leader.leader_context import LeaderContext


class RejectionReporter:
    """Reports each closing once. A new leader reports it again, with the same Event, which is then not a new one."""

    def __init__(self, context: LeaderContext) -> None:
        self._events = context.events
        self._world = context.world
        self._reported: set[tuple[NodeName, TeamName, int]] = set()

    def report_new(self) -> None:
        """Report the nodes that were closed since the last call."""
        found = {(each.node, each.team, each.since): each for each in self._world.rejecting_nodes.closed()}
        for key in found.keys() - self._reported:
            self._report(found[key])
        self._reported = set(found)

    def texts(self) -> Iterator[str]:
        """Yield what each node did with the pods of a team, for the report of this replica."""
        for each in self._world.rejecting_nodes.closed():
            yield (
                f"node {each.node}: the last {each.rejections} pods of team {each.team}{each.size} were rejected there "
                f"({each.reason}); closed to them until {_time(each.until)}"
            )

    def _report(self, closed: ClosedNode) -> None:
        text = (
            f"rejected pods of team {closed.team}{closed.size} at their admission ({closed.reason}): Fairgate places "
            f"no more of them here until {_time(closed.until)}; then one pod at a time tries the node, until one starts"
        )
        about = ObjectRef("Node", "", closed.node, closed.node)  # by its name, as in the Events of kubelets
        self._events.record(Event(about, EventReason.REJECTS_PODS, text))


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S UTC")
