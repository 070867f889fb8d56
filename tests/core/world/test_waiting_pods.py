"""The pods in line, by team, with those that are on their way."""

import time
from dataclasses import replace

from tests.core.support.make import ALICE, gpus, pod, policy, resident, team, world
from tests.core.support.waiting import waiting
from webhook.core.admission.admission import admit
from webhook.core.model.decision import Deny, Queue
from webhook.core.model.policy import OnLimit, QueueRules
from webhook.core.world.waiting_pods import EXPECTED_SECONDS, WaitingPods


def line(*pods):
    made = WaitingPods()
    for each in pods:
        made.set(each)
    return made


def test_pods_are_found_by_uid_and_by_team():
    pods = line(waiting("a"), waiting("b"), waiting("c", namespace="team-b"))
    assert [pod.pod.name for pod in pods.of("team-a")] == ["a", "b"]
    assert (len(pods), set(pods.teams()), pods.get("uid-c").team) == (3, {"team-a", "team-b"}, "team-b")
    pods.discard("uid-c")
    assert set(pods.teams()) == {"team-a"}
    pods.discard("uid-c")


def test_an_updated_pod_counts_once_also_in_another_team():
    pods = line(waiting("a"))
    pods.set(waiting("a", version="2"))
    assert (pods.count("team-a"), pods.get("uid-a").version) == (1, "2")
    moved = waiting("a", namespace="team-b")
    pods.set(moved)
    assert (pods.count("team-a"), pods.count("team-b")) == (0, 1)


def test_a_pod_on_its_way_counts_until_it_is_seen_or_can_never_come():
    pods = WaitingPods()
    pods.expect("uid-a", "team-a", now=100)
    assert (pods.count("team-a"), pods.has_line("team-a")) == (1, True)
    pods.set(waiting("a"))
    assert pods.count("team-a") == 1
    pods.expect("uid-b", "team-a", now=100)
    pods.tick(100 + EXPECTED_SECONDS)
    pods.expect("uid-c", "team-a", now=100 + EXPECTED_SECONDS)
    assert pods.count("team-a") == 2, "a is seen, c is on its way, b never came"


def test_pods_that_never_came_do_not_close_the_line_for_good():
    place = world(policy(team(guaranteed=1, limit_=1, on_limit=OnLimit.QUEUE), queue=QueueRules(depth=1)))
    place.set_pod(resident(1, node="n0"))
    place.tick(100)
    place.waiting.expect("uid-refused-by-a-quota", "team-a", now=100)
    assert isinstance(admit(pod(1), ALICE, place), Deny)
    place.tick(100 + EXPECTED_SECONDS)
    assert isinstance(admit(pod(1), ALICE, place), Queue)


def test_pods_that_come_in_order_cost_the_same_however_many_came_before():
    pods = WaitingPods()
    for number in range(100_000):
        pods.expect(f"uid-{number}", "team-a", now=100)
    began = time.process_time()
    for number in range(100_000):
        pods.discard(f"uid-{number}")
        pods.tick(100)
    assert time.process_time() - began < 2, "where the first is searched for, this takes three times as long"


def test_a_pod_is_expected_once_however_often_the_request_is_repeated():
    pods = WaitingPods()
    for _ in range(2):
        pods.expect("uid-a", "team-a", now=100)
    assert (pods.count("team-a"), pods.is_in("uid-a")) == (1, True)
    pods.discard("uid-a")
    assert (pods.count("team-a"), pods.has_line("team-a")) == (0, False)


def test_the_age_of_a_pod_counts_from_when_the_last_foreign_gate_went():
    pods = line(waiting("a", created=5, foreign_gates=("example.com/gate",)))
    pods.set(waiting("a", created=5), now=900)
    assert pods.get("uid-a").created == 901
    pods.set(waiting("a", created=5, version="9"), now=1000)
    assert pods.get("uid-a").created == 901, "it joined once"
    pods.set(waiting("b", created=7), now=1000)
    assert pods.get("uid-b").created == 7, "it was queued from the start"


def test_the_line_is_that_of_the_team_that_the_namespace_belongs_to_now():
    place = world(policy(team(), team("team-b")))
    place.set_waiting(replace(waiting("forged", namespace="team-b"), team="team-a"))
    assert (place.waiting.count("team-a"), place.waiting.count("team-b")) == (0, 1)
    place.set_policy(policy(team("team-a", namespaces=("team-*",)), hash="p2"))
    assert place.waiting.count("team-a") == 1


def test_a_pod_that_can_not_be_read_keeps_its_place_but_is_no_line():
    pods = line(waiting("a", problem="annotation too long"), waiting("b", is_terminating=True))
    assert (pods.count("team-a"), pods.has_line("team-a")) == (2, False)


def test_pods_that_other_controllers_hold_are_no_line():
    assert not line(waiting("a", foreign_gates=("example.com/gate",))).has_line("team-a")


def test_each_change_is_reported_with_its_pod():
    pods, seen = WaitingPods(), []
    pods.on_change = seen.append
    pods.set(waiting("a"))
    pods.discard("uid-a")
    pods.discard("uid-a")
    assert seen == ["uid-a", "uid-a"]


def test_a_waiting_pod_is_charged_nothing_until_it_is_seen_without_its_gate():
    place = world()
    place.set_waiting(waiting("a", 4))
    assert place.usage("team-a").total == 0
    place.set_pod(resident(4, uid="uid-a"))
    assert (len(place.waiting), place.usage("team-a").total > 0) == (0, True)
    place.set_waiting(waiting("b"))
    place.remove_pod("uid-b")
    assert len(place.waiting) == 0


def test_the_line_of_a_team_is_counted_as_pods_come_change_and_go():
    line = WaitingPods()
    line.set(waiting("a", 2))
    line.set(waiting("b", 1))
    line.set(waiting("a", 4))
    assert (line.size("team-a"), line.gpus("team-a")) == (2, gpus(5))
    line.set(replace(waiting("a", 4), team="team-b"))
    assert (line.gpus("team-a"), line.gpus("team-b")) == (gpus(1), gpus(4))
    line.discard("uid-a")
    line.discard("uid-b")
    assert (line.size("team-a"), line.gpus("team-a"), line.gpus("team-b")) == (0, 0, 0)


def test_marked_pods_with_a_turn_keep_room_by_team():
    line, changed = WaitingPods(), []
    line.on_kept = changed.append
    line.set(waiting("a", 2, keeps_room=True))
    line.set(waiting("b", 3, keeps_room=True))
    line.set(waiting("c", 4))
    assert (line.kept("team-a"), line.kept("team-b")) == (gpus(5), 0)
    assert sorted(each.pod.name for each in line.keeping()) == ["a", "b"]
    line.set(waiting("a", 2, keeps_room=True, foreign_gates=("x",)))
    line.discard(waiting("b").uid)
    assert (line.kept("team-a"), list(line.keeping())) == (0, [])
    assert set(changed) == {"team-a"}
