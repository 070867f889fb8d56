"""The stream of decisions: from pods and Events, bounded, each once, and only what a viewer may see."""

from hypothesis import given
from hypothesis import strategies as st

from tests import builders as b
from tests.addons.page.support.pages import decided
from tests.kept import kept
from webhook.addons.page.views.decisions import KEPT, KEPT_OF_NAMESPACE, Decision, DecisionLog, of_event, of_pod
from webhook.addons.page.views.teams import EVERYTHING, Viewer
from webhook.core.model.reasons import Code, Reason
from webhook.kube.pod.waiting import Waits, waiting_annotations


def decision(at, *, key=None, namespace="vision", **more):
    fields = {"kind": "admitted", "about": "Pod x", "team": "t", "tier": "", "gpus": "1", "code": "C", "text": "why"}
    return Decision(at, key or f"k{at}", namespace=namespace, **(fields | more))


def event(reason="Refused", *, component="fairgate", message="exceeded quota", **more):
    return {
        "metadata": {"name": "x.1", "namespace": "vision"},
        "involvedObject": {"kind": "Job", "name": "train"},
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "lastTimestamp": "2026-11-22T10:00:00Z",
        "count": 3,
        **more,
    }


def test_an_admitted_pod_tells_its_sums():
    pod = decided(b.pod("train-0", uid="u1", labels={"fairgate.dev/team": "vision", "fairgate.dev/tier": "guaranteed"}))
    found = of_pod(pod)
    assert (found.kind, found.about, found.team, found.tier) == ("admitted", "Pod train-0", "vision", "guaranteed")
    assert found.text == "4 GPUs sent to gpu-1, user alice; policy p1"
    gated = decided(b.pod("w", schedulingGates=[{"name": "fairgate.dev/queue"}]))
    gated["metadata"]["annotations"] |= waiting_annotations(Waits(Reason(Code.WAITS_FOR_ROOM, "no room"), 4))
    assert of_pod(gated).kind == "queued"
    assert of_pod(gated).text == "4 GPUs wait: no room, user alice; policy p1"
    del gated["metadata"]["annotations"]["fairgate.dev/waiting-facts"]
    assert of_pod(gated).text == "4 GPUs in line: waits: no room; 4th in line, user alice; policy p1"
    assert of_pod(b.pod("plain")) is None
    assert of_pod(b.pod("forged", annotations={"fairgate.dev/decision": "{"})) is None


def test_events_of_fairgate_count_and_those_of_others_do_not():
    found = of_event(event())
    assert (found.kind, found.about, found.times, found.text) == ("refused", "Job train", 3, "exceeded quota")
    assert of_event(event(component="kubelet")) is None
    assert of_event(event(reason="Pulled")) is None
    assert of_event(event(source=None)) is None


def test_texts_of_tenants_are_one_line_of_a_bounded_length():
    found = of_event(event(message="x\x1b[31m\n" + "y" * 5000))
    assert "\x1b" not in found.text
    assert len(found.text) == 1024


def test_an_event_that_is_counted_again_replaces_itself():
    log = DecisionLog()
    assert log.add(decision(1, key="a"))
    assert not log.add(decision(1, key="a"))
    assert log.add(decision(2, key="a", times=2))
    assert [each.times for each in log.newest(EVERYTHING)] == [2]


def test_the_newest_come_first_by_kind_words_and_namespace():
    log = DecisionLog()
    log.add(decision(1, namespace="nlp", kind="refused", text="exceeded quota: limit 4"))
    log.add(decision(2))
    assert [each.at for each in log.newest(EVERYTHING)] == [2, 1]
    assert [each.at for each in log.newest(EVERYTHING, words="QUOTA limit")] == [1]
    assert [each.at for each in log.newest(EVERYTHING, kind="admitted")] == [2]
    assert [each.at for each in log.newest(Viewer("v", frozenset({"vision"})))] == [2]
    assert log.kinds(EVERYTHING) == ["admitted", "refused"]
    assert log.kinds(Viewer("v", frozenset({"vision"}))) == ["admitted"]


def test_what_an_event_reports_is_for_those_who_may_list_events():
    log = DecisionLog()
    log.add(decision(1, key="pod/a"))
    log.add(decision(2, key="event/vision/b", kind="evicted"))
    pods = frozenset({"vision"})
    assert [each.at for each in log.newest(Viewer("v", pods))] == [1]
    assert [each.at for each in log.newest(Viewer("v", pods, events=pods))] == [2, 1]
    assert [each.at for each in log.newest(Viewer("v", pods, events=frozenset({"nlp"})))] == [1]
    assert [each.at for each in log.newest(Viewer("v", frozenset({"nlp"}), events=None))] == []


def test_a_namespace_that_decides_without_end_does_not_push_out_others():
    log = DecisionLog()
    log.add(decision(0, key="honest", namespace="nlp"))
    for number in range(1, 3 * KEPT):
        log.add(decision(number, namespace="hostile"))
    assert len(log) == KEPT_OF_NAMESPACE + 1
    assert [each.key for each in log.newest(Viewer("n", frozenset({"nlp"})))] == ["honest"]
    assert next(log.newest(EVERYTHING)).at == 3 * KEPT - 1


def test_decisions_that_change_without_end_take_no_room():
    log = DecisionLog()
    for number in range(3 * KEPT):
        log.add(decision(number, key=f"k{number % 7}"))
        log.add(decision(number, key=f"h{number}", namespace="hostile"))
    full = kept(log)
    for number in range(3 * KEPT, 30_000):
        log.add(decision(number, key=f"k{number % 7}"))
        log.add(decision(number, key=f"h{number}", namespace="hostile"))
    assert len(log) == KEPT_OF_NAMESPACE + 7
    assert kept(log) < 2 * full


def test_many_namespaces_together_keep_the_newest():
    log = DecisionLog()
    for number in range(KEPT + 500):
        log.add(decision(number, namespace=f"ns-{number % 97}"))
    assert len(log) == KEPT
    assert min(each.at for each in log.newest(EVERYTHING)) == 500


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda value: st.lists(value, max_size=3) | st.dictionaries(st.text(), value, max_size=3),
    max_leaves=4,
)


def fields(found, path=()):
    """The paths of all values of an object."""
    for key, value in found.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from fields(value, (*path, key))


def replaced(found, path, value):
    first, *rest = path
    return {**found, first: replaced(found[first], rest, value) if rest else value}


@given(st.data(), VALUES)
def test_whatever_a_field_holds_an_object_is_read_as_texts_or_left_out(data, value):
    for read, made in ((of_pod, decided(b.pod("p", uid="p"))), (of_event, event())):
        found = read(replaced(made, data.draw(st.sampled_from(list(fields(made)))), value))
        if found is not None:
            assert isinstance(found.at, int)
            assert {type(each) for each in (found.key, found.namespace, found.about, found.team, found.text)} == {str}
