"""How many pods of a team are released at a time for room that reclaim takes back."""

from tests.core.support.make import gpus, node, policy, resident, team, world
from tests.core.support.waiting import member, waiting
from webhook.core.line import judged_gang
from webhook.core.line.entries import MOST, SECONDS, Paced, Way
from webhook.core.line.judged_pod import judge_pod
from webhook.core.model.constraints import Tier
from webhook.core.model.policy import OnLimit, OnNoRoom
from webhook.core.starting.starts import AssumedStarts

QUEUES = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE}
MORE = 10


def place_for(*lines, borrowed=2 * MOST + 64):
    """A cluster whose GPUs are all borrowed by team-c, where pods of other teams wait inside their shares."""
    nodes = -(-borrowed // 8)
    pods = [
        resident(1, uid=f"borrows-{n}", node=f"n{n % nodes}", namespace="team-c", tier="preemptible")
        for n in range(8 * nodes)
    ]
    teams = [team(name, guaranteed=1000, limit_=None, **QUEUES) for name in ("team-a", "team-b", "team-c")]
    made = world(policy(*teams), nodes=[node(f"n{n}", gpus=8) for n in range(nodes)], residents=pods)
    for each in lines:
        made.set_waiting(each)
    return made


def line(count=MOST + MORE, *, namespace="team-a", name="p", **more):
    return [waiting(f"{name}{n:04}", namespace=namespace, created=n, **more) for n in range(count)]


def release(place, starts, now):
    """Release what is due: the pods have no gate afterwards, and no node yet."""
    turns = starts.due(now=now, count=1000)
    for turn in turns:
        place.set_pod(as_released(turn))
    return turns


def as_released(turn, on=None):
    found = turn.waiting
    node_ = turn.admit.node_choice.nodes[0]
    return resident(
        1, uid=found.uid, name=found.pod.name, namespace=found.team, tier="guaranteed", node=on, promised=node_
    )


def test_the_rest_of_the_line_follows_as_pods_get_their_nodes():
    place = place_for(*line())
    starts = AssumedStarts(place)
    turns = release(place, starts, 0)
    assert len(turns) == MOST
    assert {turn.admit.charge.tier for turn in turns} == {Tier.GUARANTEED}
    blocked = starts.blocked[f"uid-p{MOST:04}"]
    assert isinstance(blocked.verdict, Paced)
    assert blocked.reason.text == f"borrowed GPUs are reclaimed for {MOST} pods of team team-a ahead of it"
    assert release(place, starts, 1) == []
    place.remove_pod("borrows-0")
    place.set_pod(as_released(turns[0], on="n0"))
    assert [turn.waiting.pod.name for turn in release(place, starts, 2)] == [f"p{MOST:04}"]


def test_pods_that_can_never_be_bound_do_not_keep_the_others_in_line():
    """A tenant may create pods that wait in kube-scheduler for ever, such as for a volume."""
    place = place_for(*line())
    starts = AssumedStarts(place)
    release(place, starts, 0)
    assert release(place, starts, SECONDS - 1) == []
    assert len(release(place, starts, SECONDS)) == MORE


def test_a_long_line_holds_up_no_other_team():
    place = place_for(*line(), *line(3, namespace="team-b", name="q"))
    names = [turn.waiting.pod.name for turn in release(place, AssumedStarts(place), 0)]
    assert len(names) == MOST + 3
    assert {"q0000", "q0001", "q0002"} <= set(names)


def test_free_room_is_used_at_once_in_turn():
    place = place_for(*line())
    starts = AssumedStarts(place)
    release(place, starts, 0)
    for number in range(5):
        place.remove_pod(f"borrows-{number}")
    place.set_node(node("new", gpus=8))
    found = release(place, starts, 1)
    assert len(found) == 8
    assert {turn.attempt.way for turn in found} == {Way.IN_TURN}


def test_a_pod_that_went_back_to_the_line_is_not_under_way():
    place = place_for(*line())
    starts = AssumedStarts(place)
    for turn in starts.due(now=0, count=1000)[:MORE]:
        starts.drop_assumed(turn)
        starts.entries.put_back(turn.waiting.uid)
    assert len(starts.due(now=1, count=1000)) == MORE


def test_the_rest_of_the_line_is_judged_once_in_a_pass(monkeypatch):
    calls = []

    def counting(*pods, **more):
        calls.append(pods)
        return judge_pod(*pods, **more)

    monkeypatch.setattr(judged_gang, "judge_pod", counting)
    starts = AssumedStarts(place_for(*line(MOST + 200)))
    starts.due(now=0, count=1000)
    assert len(calls) == MOST + 1


def test_a_gang_starts_whole_or_waits_whole():
    members = [member(f"g{n}", size=4, created=1000 + n) for n in range(4)]
    place = place_for(*line(MOST - 2), *members)
    starts = AssumedStarts(place)
    assert len(release(place, starts, 2000)) == MOST + 2, "fewer than the bound were under way when it was judged"
    place = place_for(*line(MOST), *members)
    starts = AssumedStarts(place)
    assert len(release(place, starts, 2000)) == MOST
    assert place.usage("team-a").guaranteed == gpus(MOST)
