"""Pods whose charge may surprise, for people."""

from tests.core.support.force_deleted import delete_by_force
from tests.core.support.make import gpus, node, resident, world
from webhook.core.explain.pod_rows import left_text, stage_text, unusual_pods
from webhook.core.model.pod import Obstacle, Stage, Unbound
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import EVERY_NAMESPACE, AffinityRule

WHY = Unbound(Obstacle.OTHER, 'persistentvolumeclaim "data" not found')
GONE = {"is_terminating": True, "deadline": 100}


def there(*pods):
    made = world(nodes=[node("n0"), node("n1", is_ready=False)], residents=list(pods))
    made.tick(1000)
    return made


def test_pods_are_listed_by_their_stage():
    place = there(
        resident(4, uid="running", node="n0"),
        resident(4, uid="stalled", unbound=WHY),
        resident(2, uid="overdue", node="n0", **GONE),
        resident(8, uid="lost", node="n1", **GONE),
    )
    found = {each.stage: each for each in unusual_pods(place)}
    assert {stage: ([pod.name for pod in each.pods], each.gpus) for stage, each in found.items()} == {
        Stage.STALLED: (["stalled"], gpus(4)),
        Stage.OVERDUE: (["overdue"], gpus(2)),
        Stage.LOST: (["lost"], gpus(8)),
    }
    assert found[Stage.STALLED].text == (
        "1 pod of 4 GPUs that no node can take, for another reason than full nodes: charged, and the first to be "
        'evicted where they borrow: team-a/stalled (persistentvolumeclaim "data" not found)'
    )
    assert found[Stage.LOST].text.endswith("charged to no team: team-a/lost (n1)")


def test_what_a_pod_deleted_by_force_left_is_listed_until_it_ends_and_named_by_the_name_of_the_pod():
    place = there()
    (left,) = delete_by_force(place, resident(4, uid="ghost", node="n0", is_acknowledged=True))
    (found,) = unusual_pods(place)
    assert (found.stage, found.gpus, [pod.name for pod in found.pods]) == (Stage.LINGERING, gpus(4), ["ghost"])
    assert found.text.endswith("charged, as borrowed, for their grace periods: team-a/ghost (n0)")
    assert left_text("team-a", "ghost", place) == (
        "it was deleted by force, and node n0 may still run it: it stays charged with 4 GPUs for its grace period"
    )
    assert left_text("team-b", "ghost", place) == ""
    place.drop_reservation(left.pod.uid)
    assert (list(unusual_pods(place)), left_text("team-a", "ghost", place)) == ([], "")


def test_of_many_pods_the_first_are_named():
    (found,) = unusual_pods(there(*[resident(1, uid=f"p{n}", unbound=WHY) for n in range(5)]))
    assert found.text.startswith("5 pods of 5 GPUs")
    assert found.text.endswith("and 2 more")
    assert "p3" not in found.text


def test_pods_without_gpus_and_usual_ones_are_left_out():
    assert list(unusual_pods(there(resident(0, unbound=WHY), resident(1, node="n0"), resident(1)))) == []


def test_the_stage_of_one_pod_is_explained_where_it_is_unusual():
    pod, place = resident(1, unbound=WHY), there()
    assert 'persistentvolumeclaim "data" not found' in stage_text(pod, Stage.STALLED, place)
    assert "charged to no team" in stage_text(pod, Stage.LOST, place)
    assert "has not reported" in stage_text(pod, Stage.OVERDUE, place)
    usual = Stage.ADMITTED, Stage.WAITS, Stage.BOUND, Stage.ENDING
    assert [stage_text(pod, each, place) for each in usual] == [""] * 4


def test_the_pod_whose_anti_affinity_keeps_one_off_is_named_where_it_is_known():
    why = Unbound(Obstacle.PEERS, "node(s) didn't satisfy existing pods anti-affinity rules")
    kept = resident(1, uid="kept", unbound=why)
    from_all = AffinityRule(("os",), True, LabelSelector(()), EVERY_NAMESPACE)
    culprit = resident(0, uid="cpu-only", namespace="team-z", node="n0", anti_affinity_rules=(from_all,))
    nodes = [node("n0", labels={"os": "linux"}), node("n1", labels={"os": "linux"})]
    seen = stage_text(kept, Stage.STALLED, world(nodes=nodes, residents=[culprit, kept]))
    assert "of pod team-z/cpu-only (topology key os: 2 nodes) keeps it off every node: node(s) didn't satisfy" in seen
    unseen = stage_text(kept, Stage.STALLED, world(nodes=nodes, residents=[kept]))
    assert "of a pod of another namespace" in unseen
    assert "didn't satisfy existing pods anti-affinity rules" in unseen
