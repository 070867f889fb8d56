"""The shared state: rows that changed, policies, replacements, run times."""

from tests import builders as b
from tests.addons.page.support.pages import policy_of, sample_objects, state_of
from tests.cli.sample_world import POLICY
from webhook.core.model.amounts import ONE_GPU, NodeName
from webhook.core.model.node import Autoscaler
from webhook.core.model.policy import Policy
from webhook.core.world.world import World
from webhook.kube.ledger.reports import Report, WaitsReport
from webhook.kube.world_file.world_file import add_objects


def test_only_rows_that_differ_are_changed():
    state = state_of()
    assert {name for name, _ in state.changed_rows(state.take_dirty())} >= {"gpu-1", "t4-1"}
    state.touch_all()
    assert list(state.changed_rows(state.take_dirty())) == []
    assert state.take_dirty() == []


def test_a_reading_that_lacks_a_node_removes_its_row():
    state = state_of()
    list(state.changed_rows(state.take_dirty()))
    state.replace(state_of([b.node("gpu-1", gpus=8, model=b.A100)]).reading)
    changed = dict(state.changed_rows(state.take_dirty()))
    assert changed["gpu-3"] is None
    assert changed["gpu-1"].pods == ()
    assert [row.node for row in state.sorted_rows()] == ["gpu-1"]


def test_another_policy_draws_all_rows_again():
    state = state_of()
    list(state.changed_rows(state.take_dirty()))
    pools = "\npools: [{name: all, nodeSelector: {nvidia.com/gpu.product: Tesla-T4}}]\n"
    state.set_policy(policy_of(POLICY.rstrip() + pools))
    assert [name for name, row in state.changed_rows(state.take_dirty()) if row.pools] == ["t4-1"]


def test_every_change_is_reported_and_touches_no_unknown_node():
    state, calls = state_of(sample_objects()), []
    state.on_change = lambda: calls.append(1)
    state.touch(None, NodeName("gone"))
    assert calls == [1]
    assert dict(state.changed_rows([NodeName("gone")])) == {}


def test_waits_that_the_leader_publishes_are_kept_through_other_reports():
    state = state_of(sample_objects())
    state.note_report(Report(starts=[WaitsReport("nlp", "1", [60, 600])]))
    state.note_report(Report())
    assert state.waits.of("nlp", ONE_GPU) == (2, 60, 600)


def test_the_autoscalers_that_were_found_are_objects_that_explanations_read():
    state = state_of()
    state.take_dirty()
    state.note_autoscalers(frozenset(Autoscaler), 0)
    assert len([*state.reading.objects.of_kind("CustomResourceDefinition")]) == 2
    assert state.take_dirty()
    state.note_autoscalers(frozenset({Autoscaler.CLUSTER_AUTOSCALER}), 60)
    shown = World(Policy())
    add_objects(shown, state.reading.objects.all(), name="the page")
    assert shown.autoscalers == {Autoscaler.CLUSTER_AUTOSCALER}
