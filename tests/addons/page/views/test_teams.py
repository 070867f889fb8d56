"""Teams and departments as rows, their bars, and who sees which."""

from tests import builders as b
from tests.addons.page.support.pages import policy_of, sample_objects, state_of
from tests.cli import sample_world
from tests.core.support.make import gpus
from webhook.addons.page.views.teams import EVERYTHING, Bar, Viewer, idle_rows, line_text, minimums_of, share_rows

TREE = """
apiVersion: fairgate.dev/v1alpha1
kind: Policy
departments:
  - {name: research, gpus: {guaranteed: 20, limit: 40}}
teams:
  - {name: vision, namespaces: [vision], department: research, gpus: {guaranteed: 8, limit: 16}}
  - {name: nlp, namespaces: [nlp], gpus: {guaranteed: 4, limit: unlimited}}
"""


def by_name(rows):
    return {row.of.name: row for row in rows}


def test_a_team_has_its_numbers_holders_line_and_bar():
    row = by_name(share_rows(state_of().world, EVERYTHING))["vision"]
    assert (row.of.guaranteed, row.of.limit, row.of.preemptible, row.of.waiting) == (gpus(12), gpus(24), gpus(4), 0)
    assert row.of.holders[0] == ("vision/Job/train", gpus(12))
    assert row.bar == Bar(51, 16, 50)
    nlp = by_name(share_rows(state_of().world, EVERYTHING))["nlp"]
    assert line_text(nlp.of) == "2 (12 GPUs)"


def test_departments_come_before_their_teams():
    rows = share_rows(state_of(policy=policy_of(TREE)).world, EVERYTHING)
    assert [(row.of.name, row.depth, row.is_team) for row in rows[:3]] == [
        ("research", 0, False),
        ("vision", 1, True),
        ("nlp", 0, True),
    ]


def test_a_viewer_of_one_namespace_sees_its_team_and_holders_there_alone():
    [row] = share_rows(state_of(policy=policy_of(TREE)).world, Viewer("v", frozenset({"vision"})))
    assert (row.of.name, row.depth) == ("vision", 0)
    assert all(name.startswith("vision/") for name, _ in row.of.holders)
    assert share_rows(state_of().world, Viewer("x", frozenset({"elsewhere"}))) == []


IDLE = sample_world.POLICY + 'idle: {prometheus: {url: "http://p:9090"}, series: {job: dcgm}}\n'


def idle_state():
    """The sample world, in which two pods do not use their GPUs."""
    objects = sample_objects()
    for each in objects:
        if each["kind"] == "Pod" and each["metadata"]["name"] in ("train-0", "eval"):
            each["metadata"]["annotations"]["fairgate.dev/idle-since"] = "2026-11-22T10:00:00Z"
    return state_of(objects, policy=policy_of(IDLE))


def test_idle_pods_are_listed_those_that_hold_most_first():
    world = idle_state().world
    rows = idle_rows(world, EVERYTHING, most=10)
    assert [(row.name, row.team) for row in rows] == [("eval", "vision"), ("train-0", "vision")]
    assert [row.gpus for row in idle_rows(world, EVERYTHING, most=1)] == [rows[0].gpus]
    assert by_name(share_rows(world, EVERYTHING))["vision"].of.idle == gpus(8)
    assert idle_rows(world, Viewer("x", frozenset({"nlp"})), most=10) == []


def scaled_state():
    """The sample world with two services of three pods each, of which two are to stay."""
    objects = sample_objects()
    for namespace in ("vision", "nlp"):
        pods = b.replicas("web", 3, namespace=namespace, node="gpu-1")
        objects += [*pods, b.autoscaler("web", namespace=namespace, minimum=2)]
    return state_of(objects)


def test_minimums_are_listed_of_namespaces_that_a_viewer_sees():
    world = scaled_state().world
    rows, more = minimums_of(world, EVERYTHING, most=1)
    assert ([row.workload for row in rows], more) == (["nlp/Deployment/web"], 1)
    rows, more = minimums_of(world, Viewer("v", frozenset({"vision"})), most=9)
    assert ([row.workload for row in rows], more) == (["vision/Deployment/web"], 0)
