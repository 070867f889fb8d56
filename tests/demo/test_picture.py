"""The pictures: every GPU once, with team and tier, and the waiting pods."""

from rich.text import Text

from tests.control_plane.objects import pod
from tests.demo.picture import draw, gpu_pods, legend

BORROWS = {"fairgate.dev/tier": "preemptible"}


def bound(name, team, *, node="node-0", gpus=1, phase="Running", labels=None):
    manifest = pod(name, namespace=team, gpus=gpus, labels=labels, nodeName=node)
    return {**manifest, "status": {"phase": phase}}


def waiting(name, team, *, gpus, message=""):
    conditions = [{"type": "PodScheduled", "reason": "Unschedulable", "message": message}] if message else []
    return {**pod(name, namespace=team, gpus=gpus), "status": {"phase": "Pending", "conditions": conditions}}


def drawn(*pods, is_plain=True, **nodes):
    return draw(nodes or {"node-0": 10}, gpu_pods(pods), is_plain=is_plain).plain.splitlines()


def test_a_gpu_is_a_letter_and_those_of_one_pod_are_joined():
    pods = (bound("x", "team-a", gpus=3), bound("y", "team-a"), bound("z", "team-b", gpus=2))
    assert drawn(*pods) == ["    node-0  A-A-A A B-B . . . .    6 of 10"]
    assert drawn(*pods, is_plain=False) == ["    node-0  A─A─A A B─B · · · ·    6 of 10"]


def test_borrowed_gpus_are_lower_case_and_after_guaranteed_ones():
    pods = (bound("a", "team-a", labels=BORROWS), bound("z", "team-a"))
    assert drawn(*pods) == ["    node-0  A a . . . . . . . .    2 of 10"]


def test_finished_pods_and_pods_without_gpus_are_left_out():
    pods = (bound("done", "team-a", phase="Succeeded"), bound("failed", "team-a", phase="Failed"))
    assert drawn(*pods, bound("web", "fairgate-system", gpus=0)) == ["    node-0  . . . . . . . . . .    0 of 10"]


def test_waiting_pods_are_shown_with_the_scheduler_s_reason():
    why = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu. preemption: 0/4 nodes are available: no victims."
    assert drawn(waiting("x", "team-b", gpus=8, message=why), waiting("y", "team-b", gpus=2))[1:] == [
        "    waiting: 2 pods of team-b, 10 GPUs",
        "    kube-scheduler: 4 Insufficient nvidia.com/gpu",
    ]
    assert drawn(waiting("x", "team-b", gpus=8))[1:] == ["    waiting: 1 pod of team-b, 8 GPUs"]


def test_guaranteed_gpus_have_the_team_s_color_as_background():
    found = draw({"node-0": 2}, gpu_pods([bound("x", "team-a"), bound("y", "team-b", labels=BORROWS)]))
    styles = {found.plain[span.start : span.end]: span.style for span in found.spans}
    assert (styles["A"], styles["b"]) == ("black on cyan", "yellow")


def test_the_legend_has_the_same_signs():
    assert isinstance(legend(), Text)
    assert all(sign in legend().plain for sign in "ABa·─")
    assert all(sign in legend(is_plain=True).plain for sign in "ABa.-")
