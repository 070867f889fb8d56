"""An Event on a node for each time that it is closed to a team, and what the leader's report says of it."""

from tests.core.support.make import node, policy, world
from tests.server.support.leader_context import leader_context
from webhook.core.model.amounts import Namespace, NodeName, Uid
from webhook.core.placement.rejecting_nodes import FIRST_SECONDS, STRIKES, Rejection
from webhook.kube.objects.events import EventReason, EventType, ObjectRef
from webhook.server.leader.retries import RejectionReporter

NOW = 1_767_225_600  # 2026-01-01T00:00:00Z


class Recorder:
    def __init__(self):
        self.events = []

    def record(self, event):
        self.events.append(event)


def staged():
    place = world(policy(), nodes=[node("n0")])
    place.tick(NOW)
    recorder = Recorder()
    return place, recorder, RejectionReporter(leader_context(place, events=recorder))


def reject(place, *, at=NOW, times=STRIKES):
    for number in range(times):
        made = Rejection(NodeName("n0"), Namespace("team-a"), Uid(f"{at}-{number}"), at, "UnexpectedAdmissionError")
        place.rejecting_nodes.note(made)


def test_each_closing_is_one_event_on_the_node():
    place, recorder, reporter = staged()
    reject(place, times=STRIKES - 1)
    reporter.report_new()
    assert recorder.events == []
    reject(place, at=NOW + 1, times=1)
    reject(place, at=NOW + 1, times=20)
    for _ in range(3):
        reporter.report_new()
    [event] = recorder.events
    assert event.about == ObjectRef("Node", "", "n0", "n0")
    assert (event.reason, event.namespace) == (EventReason.REJECTS_PODS, "default")
    assert event.reason.type is EventType.WARNING
    assert event.message == (
        "rejected pods of team team-a at their admission (UnexpectedAdmissionError): Fairgate places no "
        "more of them here until 00:05:00 UTC; then one pod at a time tries the node, until one starts"
    )


def test_a_failed_try_is_another_one_and_a_new_leader_writes_the_same():
    place, recorder, reporter = staged()
    reject(place)
    reporter.report_new()
    again = Recorder()
    RejectionReporter(leader_context(place, events=again)).report_new()
    assert again.events == recorder.events
    place.tick(NOW + FIRST_SECONDS)
    reject(place, at=NOW + FIRST_SECONDS, times=1)
    reporter.report_new()
    assert len(recorder.events) == 2
    assert "until 00:15:00 UTC" in recorder.events[1].message


def test_the_report_names_node_team_and_count():
    place, _, reporter = staged()
    assert list(reporter.texts()) == []
    reject(place, times=5)
    assert list(reporter.texts()) == [
        "node n0: the last 5 pods of team team-a were rejected there (UnexpectedAdmissionError); closed to them "
        "until 00:05:00 UTC"
    ]
