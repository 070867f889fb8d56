"""Pods behind the head of the line: their reasons are true, and cost little."""

from tests.core.support.make import gpus, node, policy, resident, team, world
from tests.core.support.waiting import member, waiting
from webhook.core.line import judged_gang
from webhook.core.line.line_pass import QueuePass
from webhook.core.model.policy import Enforcement, OnLimit, OnNoRoom, QueueRules
from webhook.core.model.reasons import Code
from webhook.core.starting.starts import AssumedStarts

LIMITED = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE}


def full(*pods, **more):
    """A team of 2 GPUs that holds both, with pods in line."""
    place = world(
        policy(team(guaranteed=2, limit_=2, **LIMITED), **more), nodes=[node("n0")], residents=[resident(2, node="n0")]
    )
    for pod in pods:
        place.set_waiting(pod)
    return place


def reasons(starts, *, now=10):
    starts.due(now=now, count=9)
    return {uid.removeprefix("uid-"): each.reason.text for uid, each in starts.behind(now=now).items()}


def test_pods_that_a_pass_does_not_come_to_get_a_reason_of_their_own():
    starts = AssumedStarts(full(*(waiting(f"p{number}", number, created=number) for number in range(1, 4))))
    found = reasons(starts)
    assert set(starts.blocked) == {"uid-p1"}
    assert found == {
        "p2": "team team-a holds 2 of 2; next when 2 GPUs come back",
        "p3": "team team-a holds 2 of 2; next when 3 GPUs come back",
    }


def test_they_follow_the_policy():
    place = full(waiting("head", 1, created=1), waiting("behind", 1, created=2))
    starts = AssumedStarts(place)
    reasons(starts)
    place.set_policy(policy(team("team-b", **LIMITED)))
    assert "namespace team-a belongs to no team" in reasons(starts, now=100)["behind"]
    place.set_policy(policy(team(guaranteed=1, limit_=1, **LIMITED)))
    assert reasons(starts, now=200)["behind"] == "team team-a holds 2 of 1; next when 2 GPUs come back"


def test_one_that_could_start_alone_waits_behind_its_team():
    place = full(waiting("head", 8, created=1), waiting("small", 1, created=2, tier_label="guaranteed"))
    place.set_policy(policy(team(guaranteed=4, limit_=8, **LIMITED)))
    starts = AssumedStarts(place)
    found = starts.behind(now=10)
    assert found == {}, "there was no pass yet"
    starts.entries.sync(now=10)
    found = starts.behind(now=11)
    assert (found["uid-small"].reason.code, found["uid-small"].reason.text) == (
        Code.WAITS_IN_LINE,
        "pods of team team-a wait ahead of it",
    )


def test_one_that_its_share_does_not_help_claims_none_of_it(monkeypatch):
    """No pass comes to it: there always is something inside a share that starts."""
    monkeypatch.setattr(QueuePass, "next", lambda *_: None)
    place = full(waiting("large", 4, priority=9, user="ann"), waiting("small", 1))
    teams = team(guaranteed=4, limit_=8, per_user=gpus(2), **LIMITED)
    place.set_policy(policy(teams, queue=QueueRules(strict_after_seconds=5)))
    starts = AssumedStarts(place)
    starts.due(now=10, count=9)
    claims = starts._order.claims
    assert claims.of("team-a") == {"uid-large"}
    starts.behind(now=10)
    assert claims.of("team-a") == set(), "its user holds enough"
    starts.due(now=11, count=9)
    assert claims.of("team-a") == set()


def test_a_gang_is_judged_by_its_first_member():
    gang = [member(name, size=2, created=5) for name in ("m0", "m1")]
    found = reasons(AssumedStarts(full(waiting("head", 1, created=1), *gang)))
    assert set(found) == {"m0", "m1"}
    assert set(found.values()) == {"gang g needs 2 GPUs together; team team-a holds 2 of 2; next when 2 GPUs come back"}


def test_the_work_of_a_second_is_bounded_and_the_round_goes_on(monkeypatch):
    monkeypatch.setattr(judged_gang, "JUDGED", 3)
    starts = AssumedStarts(full(*(waiting(f"p{number}", number, created=number) for number in range(1, 9))))
    first = reasons(starts)
    assert set(first) == {"p2", "p3", "p4"}
    assert starts.behind(now=10) == {}
    assert set(reasons(starts, now=11)) == {"p5", "p6", "p7"}
    assert set(reasons(starts, now=12)) == {"p8"}
    assert set(reasons(starts, now=13)) == {"p2", "p3", "p4"}


def test_equal_pods_are_judged_once(monkeypatch):
    judged = []
    original = judged_gang.judge_pod
    monkeypatch.setattr(judged_gang, "judge_pod", lambda *args: judged.append(args) or original(*args))
    found = reasons(AssumedStarts(full(*(waiting(f"p{number:02}", 1, created=number) for number in range(20)))))
    assert (len(found), len(judged)) == (19, 2), "the first in the queue, and those behind it"


def test_where_policy_is_not_enforced_none_is_judged():
    assert reasons(AssumedStarts(full(waiting("a", 1), waiting("b", 1), enforce=Enforcement.SHADOW))) == {}
