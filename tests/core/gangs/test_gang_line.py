"""Which gangs are complete, and whose members start alone."""

from dataclasses import replace

from tests.core.support.make import node, policy, resident, team, world
from tests.core.support.waiting import member, waiting
from tests.kept import kept
from webhook.core.line.gang_plans import READ_SECONDS, UNREAD_SECONDS, GangPlan
from webhook.core.line.gangs import LATE_SECONDS, ORDERED_SECONDS, SETTLE_SECONDS, GangLine, gang_in_line
from webhook.core.line.line import WaitingEntries
from webhook.core.model.amounts import GangId
from webhook.core.model.policy import OnLimit, OnNoRoom
from webhook.core.starting.starts import AssumedStarts

GANG = GangId("team-a/g")
LIMITED = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE}


def place_for(*pods, residents=(), **shares):
    nodes = [node(f"n{number}") for number in range(4)]
    place = world(policy(team(**{**LIMITED, **shares})), nodes=nodes, residents=list(residents))
    for pod in pods:
        place.set_waiting(pod)
    return place


def entries(view, now):
    view.sync(now=now)
    return sorted(sorted(pod.name for pod in entry.pods) for entry in view.queue.entries())


def test_a_gang_of_a_declared_size_waits_for_all_and_is_one_entry():
    place = place_for(member("a", size=2))
    view = WaitingEntries(place)
    assert entries(view, 100) == []
    place.set_waiting(member("b", size=2))
    assert entries(view, 100) == [["a", "b"]]


def test_the_largest_size_counts_where_members_disagree():
    view = WaitingEntries(place_for(member("a", size=2), member("b", size=3)))
    assert entries(view, 100) == []


def test_a_gang_of_unknown_size_has_come_once_no_other_member_came_for_a_while():
    place = place_for(member("a"))
    view = WaitingEntries(place)
    assert entries(view, 100) == []
    place.set_waiting(member("b"))
    assert entries(view, 102) == []
    assert entries(view, 102 + SETTLE_SECONDS) == []
    assert entries(view, 103 + SETTLE_SECONDS) == [["a", "b"]]


def test_a_leader_whose_workers_are_made_once_it_runs_is_not_waited_with_for_ever():
    view = WaitingEntries(place_for(member("leader", size=4, is_ordered=True)))
    assert entries(view, 100) == []
    assert entries(view, 100 + ORDERED_SECONDS) == []
    assert entries(view, 101 + ORDERED_SECONDS) == [["leader"]]
    strict = WaitingEntries(place_for(member("one", size=4)))
    assert entries(strict, 100) == entries(strict, 399) == []


def test_a_gang_that_does_not_grow_starts_what_came_with_room_for_the_others():
    """As where an operator makes the other pods only once one of these has a node."""
    place = place_for(member("a", size=4), member("b", count=2, size=4))
    view = WaitingEntries(place)
    assert entries(view, 100) == entries(view, 399) == []
    assert entries(view, 400) == [["a", "a-follower-0", "a-follower-1", "b"]]
    assert {pod.pod.demand for pod in place.waiting.expected.values()} == {member("b", count=2).pod.demand}
    (timeout,) = view.gangs.timeouts
    want = "2 of 4 members of gang g have come within 5m: those that came start once there is room for the others, too"
    assert timeout.cause.text == want
    place.set_waiting(member("c", size=4))
    assert entries(view, 401) == [], "it grows"
    assert not place.waiting.expected
    assert entries(view, 701) == [["a", "a-follower-0", "b", "c"]]


def test_what_starts_of_a_gang_that_does_not_grow_is_inside_the_limit_with_all_of_it():
    for limit, want in ((4, 4), (3, 0)):
        place = place_for(member("a", size=4), member("b", size=4), guaranteed=0, limit_=limit)
        starts = AssumedStarts(place)
        assert starts.due(now=100, count=9) == []
        assert len(starts.due(now=400, count=9)) == want


def test_a_gang_that_does_not_grow_waits_where_its_scheduler_would_not_place_a_part_or_others_hold_one():
    grouped = member("a", size=2)
    grouped = replace(grouped, pod=grouped.pod._replace(gang=grouped.pod.gang._replace(is_pod_group=True)))
    held = (member("a", size=3), member("b", size=3, foreign_gates=("example.com/gate",)))
    for pods in ((grouped,), held, (member("a", size=501),)):
        view = WaitingEntries(place_for(*pods))
        assert entries(view, 100) == entries(view, 100_000) == []


def test_a_part_that_started_with_room_for_the_others_is_not_taken_back():
    place = place_for(member("a", size=2))
    starts, line = AssumedStarts(place), GangLine(place, paused=(), is_starting=place.is_assumed)
    assert starts.due(now=100, count=9) == []
    first, other = starts.due(now=400, count=9)
    assert first.waiting.pod.name == "a"
    assert other.is_reservation
    assert line.is_partly_charged(first.waiting, charged={"uid-a"}, now=400) is False
    place.drop_reservation(other.waiting.uid)
    assert line.is_partly_charged(first.waiting, charged={"uid-a"}, now=400) is True, (
        "no room is reserved for the other"
    )


def test_members_that_others_hold_have_not_come():
    place = place_for(member("a", size=2), member("b", size=2, foreign_gates=("example.com/gate",)))
    view = WaitingEntries(place)
    assert entries(view, 100) == []
    assert entries(WaitingEntries(place_for(member("a"), member("b", foreign_gates=("x",)))), 200) == []
    place.set_waiting(member("b", size=2))
    assert entries(view, 100) == [["a", "b"]]


def test_members_without_gpus_count_as_come_once_they_run():
    place = place_for(member("a", size=2))
    view = WaitingEntries(place)
    assert entries(view, 100) == []
    place.set_pod(resident(0, node="n0", uid="head", gang=GANG))
    assert entries(view, 100) == [["a"]]


def test_only_the_oldest_of_an_elastic_gang_start_together():
    pods = [member(f"m{number}", size=2, created=number) for number in range(3)]
    assert entries(WaitingEntries(place_for(*pods)), 100) == [["m0", "m1"]]


def test_later_members_of_a_gang_that_has_started_are_entries_of_their_own():
    runs = resident(1, node="n0", gang=GANG)
    place = place_for(member("a", size=4), member("b", size=4), residents=[runs])
    view = WaitingEntries(place)
    assert entries(view, 100) == [["a"], ["b"]]
    place.set_waiting(member("c", size=4))
    place.remove_pod("uid-a")
    assert entries(view, 100) == [["b"], ["c"]]


def test_members_wait_for_each_other_again_once_no_pod_of_their_gang_runs():
    place = place_for(member("a", size=2), residents=[resident(1, node="n0", uid="runs", gang=GANG)])
    view = WaitingEntries(place)
    assert entries(view, 100) == [["a"]]
    place.remove_pod("runs")
    place.set_waiting(member("b", size=2))
    assert entries(view, 101) == [["a", "b"]], "a pod is in one entry"
    place.remove_pod("uid-b")
    assert entries(view, 102) == []


def test_nothing_of_a_gang_is_judged_while_a_part_of_it_is_charged():
    place = place_for(member("a", size=2), member("b", size=2))
    starts = AssumedStarts(place)
    assert len(starts.due(now=100, count=1)) == 2, "whole, however many are released at once"
    place.set_waiting(member("c", size=2))
    assert entries(starts.entries, 101) == []


def test_a_new_leader_takes_back_what_was_charged_of_a_part():
    place = place_for(member("a", size=2), member("b", size=2))
    starts, line = AssumedStarts(place), GangLine(place, paused=(), is_starting=place.is_assumed)
    turns = starts.due(now=100, count=64)
    waiting, both = turns[0].waiting, {"uid-a", "uid-b"}
    assert line.is_partly_charged(waiting, charged=both, now=100) is False
    assert line.is_partly_charged(waiting, charged={"uid-a"}, now=100) is True, "a charge that is withdrawn is none"
    place.set_pod(resident(1, node="n0", uid="uid-b", gang=GANG))
    assert line.is_partly_charged(waiting, charged={"uid-a"}, now=100) is False, "it goes on with a started gang"


def test_whether_a_gang_is_charged_in_part_is_known_once_its_object_was_read():
    """An elastic member beyond the size of the gang waits uncharged, and is no reason to take back the others."""
    first, second, extra = (member(name, is_described=True) for name in ("a", "b", "c"))
    place = place_for(first, second, extra)
    view, charged = WaitingEntries(place), {"uid-a", "uid-b"}
    view.sync(now=100)
    assert view.gangs.is_partly_charged(first, charged=charged, now=100) is None
    assert [pod.pod.name for pod in view.gangs.unread(now=100)] == ["a"]
    view.gangs.learn(GANG, GangPlan(2))
    assert view.gangs.is_partly_charged(first, charged=charged, now=100) is False
    view.gangs.learn(GANG, GangPlan(3))
    assert view.gangs.is_partly_charged(first, charged=charged, now=100) is True


def test_a_gang_that_takes_long_to_come_says_how_many_have():
    place = place_for(member("a", size=2))
    starts = AssumedStarts(place)
    starts.due(now=100, count=1)
    assert starts.blocked == {}
    starts.due(now=100 + LATE_SECONDS, count=1)
    assert starts.blocked["uid-a"].reason.text == "1 of 2 members of gang g have come"


def test_a_size_that_was_read_counts_and_is_read_again_while_members_are_missing():
    place = place_for(member("a", is_described=True))
    view = WaitingEntries(place)
    assert entries(view, 100) == []
    (pod,) = view.gangs.unread(now=100)
    assert pod.pod.name == "a"
    assert view.gangs.learn(GANG, GangPlan(2))
    assert entries(view, 200) == [], "it would have been whole by now"
    assert view.gangs.unread(now=100 + READ_SECONDS - 1) == []
    assert view.gangs.unread(now=100 + READ_SECONDS)
    assert view.gangs.learn(GANG, GangPlan(1))
    assert not view.gangs.learn(GANG, GangPlan(problem="gone")), "what it said before still holds"
    assert entries(view, 201) == [["a"]]


def test_a_gang_waits_for_its_object_to_be_read_but_not_for_ever():
    view = WaitingEntries(place_for(member("a", is_described=True)))
    assert entries(view, 100) == []
    assert entries(view, 100 + UNREAD_SECONDS) == []
    assert entries(view, 101 + UNREAD_SECONDS) == [["a"]]


def test_a_gang_whose_object_says_nothing_is_what_came_without_a_pause():
    view = WaitingEntries(place_for(member("a", is_described=True)))
    assert entries(view, 100) == []
    assert view.gangs.learn(GANG, GangPlan(problem="gone"))
    assert entries(view, 101 + SETTLE_SECONDS) == [["a"]]


def test_an_object_that_cannot_be_read_now_is_tried_again_for_a_while():
    view = WaitingEntries(place_for(member("a", is_described=True)))
    assert entries(view, 100) == []
    assert view.gangs.unread(now=100)
    view.gangs.learn(GANG, GangPlan(problem="503", is_temporary=True))
    assert entries(view, 100 + UNREAD_SECONDS) == []
    assert view.gangs.unread(now=101), "each second"
    view.gangs.learn(GANG, GangPlan(2))
    assert entries(view, 101 + UNREAD_SECONDS) == []


def test_the_object_counts_more_than_what_pods_declare_and_the_text_says_both():
    view = WaitingEntries(place_for(member("a", size=3, is_described=True), member("b", size=3, is_described=True)))
    entries(view, 100)
    view.gangs.learn(GANG, GangPlan(4, source="JobSet js"))
    assert entries(view, 101) == []
    texts = {cause.text for _, cause in view.gangs.late(now=100 + LATE_SECONDS)}
    assert texts == {"2 of 4 members of gang g have come (JobSet js says 4, its pods 3)"}
    view.gangs.learn(GANG, GangPlan(2, source="JobSet js"))
    assert entries(view, 110) == [["a", "b"]]


def test_pods_without_gpus_do_not_count_in_a_size_of_pods_with_gpus():
    head = resident(0, node="n0", uid="head", gang=GANG)
    view = WaitingEntries(place_for(member("a", is_described=True), residents=[head]))
    entries(view, 100)
    view.gangs.learn(GANG, GangPlan(2))
    assert entries(view, 101) == []
    view.gangs.learn(GANG, GangPlan(2, counts_all=True))
    assert entries(view, 102) == [["a"]]


def test_a_gang_that_does_not_come_in_time_is_reported_once_and_again_only_after_it_was_whole():
    place = place_for(member("a", size=2))
    view = WaitingEntries(place)
    entries(view, 100)
    assert [cause.text for _, cause in view.gangs.late(now=399)] == ["1 of 2 members of gang g have come"]
    assert view.gangs.timeouts == []
    want = "1 of 2 members of gang g have come within 5m: those that came start once there is room for the others, too"
    for now in (400, 401):
        assert [cause.text for _, cause in view.gangs.late(now=now)] == [want]
    assert [(each.waiting.pod.name, each.cause.text) for each in view.gangs.timeouts] == [("a", want)]
    place.set_waiting(member("b", size=2))
    assert entries(view, 500) == [["a", "b"]]
    place.waiting.discard("uid-b")
    entries(view, 501)
    list(view.gangs.late(now=502))
    assert len(view.gangs.timeouts) == 2


def test_a_gang_that_says_it_is_larger_than_may_start_together_never_starts_and_says_so():
    view = WaitingEntries(place_for(member("a", is_described=True)))
    entries(view, 100)
    view.gangs.learn(GANG, GangPlan(10**9))
    assert entries(view, 101) == entries(view, 10**6) == []
    ((_, cause),) = view.gangs.late(now=10**6)
    assert cause.text == "gang g has 1,000,000,000 members; at most 500 start together"


def test_pods_that_follow_others_are_judged_with_them_and_no_more_are_expected_than_are_missing():
    place = place_for(member("a", is_described=True))
    view = WaitingEntries(place)
    entries(view, 100)
    worker = member("w", count=3).pod
    view.gangs.learn(GANG, GangPlan(1, late=(worker, worker)))
    assert entries(view, 101) == [["a", "a-follower-0", "a-follower-1"]]
    assert {pod.pod.demand for pod in place.waiting.expected.values()} == {worker.demand}
    place.set_waiting(member("b", count=3, is_described=True))
    assert entries(view, 102) == [["a", "a-follower-0", "b"]]
    place.waiting.discard("uid-a")
    place.waiting.discard("uid-b")
    assert entries(view, 103) == []
    assert not place.waiting.expected


def test_nothing_is_kept_of_gangs_that_come_and_go_without_end():
    place = place_for()
    view = WaitingEntries(place)
    worker = member("w").pod
    sizes = []
    for number in range(100):
        gang, now = GangId(f"team-a/g{number}"), 100 + number
        place.set_waiting(member("a", f"g{number}", is_described=True))
        entries(view, now)
        view.gangs.unread(now=now)
        view.gangs.learn(gang, GangPlan(1 + number % 2, late=(worker,)))
        entries(view, now)
        list(view.gangs.late(now=now + 1000))
        place.waiting.discard("uid-a")
        entries(view, now)
        view.gangs.timeouts.clear()
        sizes.append(kept(view))
    assert max(sizes) <= sizes[9] + 20
    assert not place.waiting.expected


def test_what_was_expected_ends_with_the_term_of_a_leader():
    place = place_for(member("a", is_described=True))
    view = WaitingEntries(place)
    entries(view, 100)
    view.gangs.learn(GANG, GangPlan(1, late=(member("w").pod,)))
    entries(view, 101)
    assert place.waiting.expected
    view.close()
    assert not place.waiting.expected


def test_gangs_of_teams_without_a_queue_start_as_before():
    place = place_for(on_limit=OnLimit.REJECT, on_no_room=OnNoRoom.WAIT)
    assert gang_in_line(member("a"), place) is None
    assert gang_in_line(member("a", is_requested=True), place) == GANG
    assert gang_in_line(waiting("a"), place) is None
