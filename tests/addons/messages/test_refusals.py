"""Refusals of all replicas, summed from their reports."""

from hypothesis import given
from hypothesis import strategies as st

from tests.addons.messages.made import NOW
from tests.examples import examples
from webhook.addons.messages.alerts import Severity, Subject
from webhook.addons.messages.server import FRESH_SECONDS, RefusalCounter, RefusalWindow
from webhook.core.model.policy_addons import NotifyKind, NotifyRules
from webhook.kube.ledger.reports import MAX_REFUSED, RefusedReport, ReplicaReport

RULES = NotifyRules(refusals=20, refusals_within_seconds=600)


VISION = Subject(NotifyKind.REFUSALS, "vision", Severity.WARNING)


def report(**counts):
    refused = [RefusedReport(team, "TeamLimitExceeded", count) for team, count in counts.items()]
    return ReplicaReport("server", "", "", "", "enforce", refused=refused)


def test_refusals_of_all_replicas_count_together_and_grow_old():
    window = RefusalWindow()
    window.update({"a": report(), "b": report()}, NOW)
    window.update({"a": report(vision=11), "b": report(vision=10, nlp=3)}, NOW + 10)
    [(subject, state)] = window.states(RULES, NOW + 20).items()
    assert subject == VISION
    assert state.summary == "team vision: 21 refused requests within 10m"
    assert list(state.lines) == ["TeamLimitExceeded: 21"]
    window.update({"a": report(vision=11), "b": report(vision=10, nlp=3)}, NOW + 300)
    assert window.states(RULES, NOW + 610)
    assert window.states(RULES, NOW + 611) == {}


def test_what_was_refused_before_this_process_led_is_old():
    window = RefusalWindow()
    window.update({"a": report(vision=1000)}, NOW)
    assert window.states(RULES, NOW) == {}
    window.update({"a": report(vision=1020), "b": report(vision=5000)}, NOW + 10)
    assert window.states(RULES, NOW + 10) == {}, "and so are those of a process that is seen first"
    window.update({"a": report(vision=1021), "b": report(vision=5000)}, NOW + 20)
    assert window.states(RULES, NOW + 20)[VISION].summary.startswith("team vision: 21 refused")
    window.forget()
    window.update({"a": report(vision=2000)}, NOW + 30)
    assert window.states(RULES, NOW + 30) == {}


def test_a_process_that_leaves_a_count_out_for_a_while_counts_nothing_twice():
    window = RefusalWindow()
    for counts in ({"vision": 15}, {"vision": 30}, {}, {"vision": 36}):
        window.update({"a": report(**counts)}, NOW)
    assert window.states(RULES, NOW)[VISION].summary.startswith("team vision: 21 refused")


def test_published_counts_are_the_same_for_a_while_and_bounded():
    counter = RefusalCounter()
    assert counter.published(0) == []
    for number in range(MAX_REFUSED + 10):
        counter.note(f"t{number}", "TeamLimitExceeded")
    assert counter.published(FRESH_SECONDS - 1) == []
    assert len(counter.published(FRESH_SECONDS)) == MAX_REFUSED


@examples(60)
@given(steps=st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), max_size=20))
def test_the_sum_is_that_of_what_the_replicas_refused(steps):
    """Three replicas, each of which refuses some requests between two reports."""
    window, counters = RefusalWindow(), [RefusalCounter() for _ in range(3)]
    want, now = 0, 0.0
    for step in [[0, 0, 0], *steps]:
        now += FRESH_SECONDS
        for counter, count in zip(counters, step, strict=True):
            for _ in range(count):
                counter.note("vision", "TeamLimitExceeded")
        want += sum(step)
        reports = [report(**{each.team: each.count for each in counter.published(now)}) for counter in counters]
        window.update(dict(zip("abc", reports, strict=True)), now)
    states = window.states(NotifyRules(refusals=0, refusals_within_seconds=100_000), now)
    assert [line for state in states.values() for line in state.lines] == (
        [f"TeamLimitExceeded: {want:,}"] if want else []
    )
