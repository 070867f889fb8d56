"""Charges on TeamLedger objects, over real HTTP: batches, lost races, lost responses, callers that disconnect."""

import asyncio
from fractions import Fraction

import pytest

from tests.cluster.support.fake_api import Answer, Cut, Held, Slow
from tests.cluster.support.replica import NO, PODS, YES, A, beside, in_flight
from tests.cluster.support.stores import FAST, until
from tests.core.support.make import gpus, policy, resident, team
from tests.core.support.waiting import waiting
from webhook.cluster.ledger.ledger_objects import PATH
from webhook.cluster.watch.feed import Feed
from webhook.core.model.amounts import TeamName
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge, NotApplicable, Retry
from webhook.core.model.reasons import Code, Reason
from webhook.core.quota.charges import InFlightCharge, LedgerDecision, Quota


async def test_the_first_charge_creates_the_object_and_a_refusal_needs_no_write(api, one):
    assert [await one.ask(f"u{number}") for number in range(5)] == [YES] * 4 + [NO]
    assert in_flight(api) == ["u0", "u1", "u2", "u3"]
    assert (api.count("post"), api.count("put")) == (1, 3)
    status = api.objects[PATH]["/team-a"]["status"]
    assert (status["used"], status["reserved"], status["limit"]) == ("4", "4", "4")


async def test_waiting_requests_share_one_write_and_one_limit(api, one):
    await one.ask("first")
    answers = await asyncio.gather(*(one.ask(f"u{number}") for number in range(8)))
    assert sorted(answer is YES for answer in answers) == [False] * 5 + [True] * 3
    assert api.count("put") <= 2
    assert max(one.counts.charges) >= 2


async def one_pod_after_the_other(replica, name, count, *, pause=0.004):
    for number in range(count):
        assert await replica.ask(f"{name}-{number}") is YES
        await asyncio.sleep(pause)


async def test_callers_that_keep_charging_at_once_share_writes_and_one_that_charges_alone_does_not_wait(api, make):
    api.always["put"] = Slow(0.01)
    replica, loop = make(limit=1000), asyncio.get_running_loop()
    began = loop.time()
    await one_pod_after_the_other(replica, "alone", 20)
    assert loop.time() - began < 20 * 0.02
    callers = [one_pod_after_the_other(replica, f"caller-{n}", 20, pause=0.005 + 0.002 * n) for n in range(12)]
    await asyncio.gather(*callers)
    alone, shared = replica.counts.charges[:20], replica.counts.charges[20:]
    assert alone == [1] * 20
    assert sum(shared) == 240
    assert len(shared) <= 35


async def test_two_replicas_together_never_exceed_the_limit(api, one, other):
    answers = await asyncio.gather(
        *(one.ask(f"one-{number}") for number in range(6)), *(other.ask(f"other-{number}") for number in range(6))
    )
    assert sum(answer is YES for answer in answers) == 4
    assert sum(answer is NO for answer in answers) == 8
    assert len(in_flight(api)) == 4
    assert "conflict" in one.counts.results + other.counts.results


async def test_a_restored_etcd_is_noticed_and_charges_nothing_more(api, one, other):
    for number in range(3):
        assert await one.ask(f"u{number}") is YES
    [known] = api.objects[PATH].values()
    api.restore(99)
    api.objects[PATH].clear()
    assert await other.ask("u9") is YES, "a process that remembers nothing goes on"
    assert isinstance(await one.ask("u3", seconds=5.0), Retry)
    known = known["metadata"]["resourceVersion"]
    assert f"TeamLedger team-a is at resourceVersion 100, and {known} was seen before" in str(one.restored[0])
    assert (in_flight(api), other.restored) == (["u9"], [])


async def test_a_confirmed_pod_leaves_the_object_and_its_status_says_so(api, one):
    await one.ask("u0")
    one.see("u0", version=7)
    await one.ask("u1")
    assert in_flight(api) == ["u1"]
    assert api.objects[PATH]["/team-a"]["ledger"]["folded"] == "7"
    status = api.objects[PATH]["/team-a"]["status"]
    assert (status["used"], status["reserved"]) == ("2", "1")


async def test_a_replica_whose_view_is_older_than_the_object_waits_for_it(one, other):
    await one.ask("u0")
    one.see("u0", version=7)
    await one.ask("u1")
    waiting = asyncio.create_task(other.ask("u2"))
    await until(lambda: "conflict" in other.counts.results)
    await asyncio.sleep(0.02)
    assert not waiting.done()
    other.see("u0", version=7)
    assert await waiting is YES
    assert other.counts.waits >= 1


async def test_a_view_that_stays_behind_is_a_lost_race(one, other):
    await one.ask("u0")
    one.see("u0", version=7)
    await one.ask("u1")
    answer = await other.ask("u2", seconds=0.1)
    assert isinstance(answer, Retry)
    assert answer.reason.code is Code.RACE_LOST
    assert "view of the pods is behind" in answer.reason.text


@pytest.mark.parametrize("is_carried_out", [False, True])
async def test_after_a_write_without_a_response_the_object_is_read(api, one, is_carried_out):
    await one.ask("u0")
    api.faults["put"].extend([Cut(is_carried_out=is_carried_out)] * 2)  # aiohttp tries a PUT once more by itself
    assert await one.ask("u1") is YES
    assert in_flight(api) == ["u0", "u1"]
    assert one.counts.results[:2] == ["written", "unknown"]


@pytest.mark.parametrize("is_carried_out", [False, True])
async def test_after_a_first_write_without_a_response_the_object_is_read(api, one, is_carried_out):
    api.faults["post"].append(Cut(is_carried_out=is_carried_out))
    assert await one.ask("u0") is YES
    assert in_flight(api) == ["u0"]


async def test_a_caller_that_timed_out_is_not_charged(api, one):
    await one.ask("u0")
    api.faults["put"].append(held := Held())
    answer = await one.ask("u1", seconds=0.05)
    held.go.set()
    assert isinstance(answer, Retry)
    assert answer.reason.code is Code.RACE_LOST
    await until(lambda: in_flight(api) == ["u0"] and api.count("put") == 2)
    assert one.counts.withdrawn == 1
    await until(lambda: one.world.usage(A).total == gpus(1))


async def test_a_caller_that_disconnected_is_not_charged(api, one):
    await one.ask("u0")
    one.is_gone = True
    assert isinstance(await one.ask("u1"), Retry)
    await until(lambda: in_flight(api) == ["u0"] and api.count("put") == 2)


async def test_a_caller_that_disconnected_while_the_write_was_in_doubt_is_not_charged(api, one):
    await one.ask("u0")
    api.faults["put"].extend([Cut(is_carried_out=True)] * 2)
    api.faults["get"].append(held := Held())
    assert isinstance(await one.ask("u1", seconds=0.2), Retry)
    held.go.set()
    await until(lambda: in_flight(api) == ["u0"])


async def test_a_repeated_request_is_charged_once(api, one):
    assert await asyncio.gather(one.ask("u0"), one.ask("u0")) == [YES, YES]
    assert await one.ask("u0") is YES
    assert in_flight(api) == ["u0"]
    assert one.world.usage(A).total == gpus(1)


async def test_while_writes_fail_callers_get_the_reason_and_other_teams_are_served(api, one):
    api.faults["post"].extend([Answer(403)] * 50)
    answer = await one.ask("u0", seconds=0.2)
    assert isinstance(answer, Retry)
    assert answer.reason.code is Code.LEDGER_UNAVAILABLE
    assert "RBAC must grant this user the verb create on teamledgers" in answer.reason.text
    assert one.world.usage(A).total == 0
    api.faults["post"].clear()
    assert await one.ask("u1") is YES


async def test_a_slow_team_does_not_delay_another(api, one):
    api.faults["post"].append(held := Held())
    slow = asyncio.create_task(one.ask("u0"))
    await until(lambda: api.count("post") == 1)
    assert await one.ask("b0", team_name=TeamName("team-b")) is YES
    assert not slow.done()
    held.go.set()
    assert await slow is YES


async def test_a_charge_is_dropped_after_a_live_read_shows_no_pod(api, one):
    await one.ask("orphan")
    await one.ask("there")
    api.put(PODS, "there", namespace="team-a", metadata={})
    api.objects[PODS]["team-a/there"]["metadata"]["uid"] = "there"
    dropped = []
    async with beside(one.ledger.drop_orphans(is_leader=lambda: True, report=dropped.append, unseen_seconds=0.02)):
        await until(lambda: not in_flight(api))
    assert [flight.pod.uid for flight in dropped] == ["orphan"]
    version = int(api.objects[PODS]["team-a/there"]["metadata"]["resourceVersion"])
    assert api.objects[PATH]["/team-a"]["ledger"]["folded"] == str(version)
    assert one.world.usage(A).total == gpus(1), "the one that is there counts until the view shows it, and after"
    one.see("there", version=version)
    assert await one.ask("next") is YES
    assert one.world.usage(A).total == gpus(2)


async def test_orphans_are_not_dropped_too_early_or_by_a_replica_that_does_not_lead(api, one):
    await one.ask("u0")
    async with (
        beside(one.ledger.drop_orphans(is_leader=lambda: False, report=pytest.fail, unseen_seconds=0.001)),
        beside(one.ledger.drop_orphans(is_leader=lambda: True, report=pytest.fail, unseen_seconds=30)),
    ):
        await asyncio.sleep(0.05)
    assert in_flight(api) == ["u0"]


async def test_the_watch_applies_charges_of_others_and_deletions(api, one, other, connection):
    feed = Feed(connection, (other.ledger.kind(),), pace=FAST)
    async with beside(feed.run()):
        await feed.wait_synced()
        await one.ask("u0")
        await until(lambda: other.world.usage(A).reserved == gpus(1))
        api.delete(PATH, "team-a")
        await asyncio.sleep(0.05)
        assert other.world.usage(A).reserved == gpus(1), "a deleted object is no evidence"
        assert await other.ask("u1") is YES
    assert in_flight(api) == ["u0", "u1"]


async def test_reconciling_updates_objects_and_deletes_those_of_removed_teams(api, one):
    await one.ask("u0")
    await one.ask("b0", team_name=TeamName("team-b"))
    one.see("u0", version=7)
    one.see("b0", version=8, team_name=TeamName("team-b"))
    one.world.set_policy(policy(team(guaranteed=4, limit_=9), team("team-c")))
    async with beside(one.ledger.reconcile(is_leader=lambda: True)):
        await until(lambda: "/team-c" in api.objects[PATH], seconds=30)
        await until(lambda: not in_flight(api), seconds=30)
        await until(lambda: "/team-b" not in api.objects[PATH], seconds=30)
        status = api.objects[PATH]["/team-a"]["status"]
        assert (status["used"], status["limit"], status["inFlight"]) == ("1", "9", 0)
        writes = len(one.counts.results)
        await asyncio.sleep(2.5)
        assert len(one.counts.results) == writes, "at rest nothing is written"


@pytest.mark.parametrize("breaks_at", [1, 2])
async def test_a_bug_in_a_decision_is_raised_in_its_request_and_the_next_is_served(one, other, breaks_at):
    def breaks():
        calls.append(1)
        if len(calls) == breaks_at:
            raise KeyError("a bug")
        return one.judge("u0")()

    calls = []
    await other.ask("first")  # so that the first write loses the race, and the pod is judged again
    with pytest.raises(KeyError):
        await one.ledger.commit(breaks, deadline=asyncio.get_running_loop().time() + 1, is_gone=lambda: False)
    assert len(calls) == breaks_at
    assert await one.ask("u1") is YES


async def test_pods_are_judged_once_also_those_that_come_during_a_write(api, one):
    await one.ask("first")
    api.faults["put"].append(held := Held())
    asked = [asyncio.create_task(one.ask(f"u{number}")) for number in range(2)]
    await until(lambda: api.count("put") == 1)
    asked += [asyncio.create_task(one.ask("late")), asyncio.create_task(one.ask("refused"))]
    assert await asked.pop() is NO, "no refusal waits for a write"
    held.go.set()
    assert await asyncio.gather(*asked) == [YES] * 3
    assert one.judged == dict.fromkeys(("first", "u0", "u1", "late", "refused"), 1)


async def test_pods_that_were_judged_during_a_write_are_judged_again_when_another_replica_was_faster(api, one, other):
    await one.ask("first")
    api.faults["put"].append(held := Held())
    asked = [asyncio.create_task(one.ask(f"u{number}")) for number in range(3)]
    await until(lambda: api.count("put") == 1)
    answers = [await other.ask("rival-0"), await other.ask("rival-1")]
    held.go.set()
    answers += await asyncio.gather(*asked)
    assert (answers.count(YES), answers.count(NO)) == (3, 2)
    assert len(in_flight(api)) == 4


async def test_pods_that_were_judged_during_a_write_are_judged_again_under_a_new_policy(api, one):
    await one.ask("first")
    api.faults["put"].append(held := Held())
    asked = [asyncio.create_task(one.ask("u0"))]
    await until(lambda: api.count("put") == 1)
    asked.append(asyncio.create_task(one.ask("late")))
    await asyncio.sleep(0)
    one.limit = gpus(2)
    one.world.set_policy(policy(team(guaranteed=2, limit_=2)))
    held.go.set()
    assert await asyncio.gather(*asked) == [YES, NO]
    assert in_flight(api) == ["first", "u0"]


async def test_a_pod_of_an_exempt_namespace_does_not_wait_for_a_write(api, one):
    exempt = NotApplicable(Reason(Code.EXEMPT, "only counted"))
    flight = one.judge("u0")().flight
    answer = await one.ledger.commit(lambda: LedgerDecision(exempt, flight), deadline=0.0, is_gone=lambda: False)
    assert answer is exempt
    assert api.asked == []


async def test_a_full_resource_quota_refuses_a_new_pod_and_no_promotion_of_one_that_it_counts(api, one):
    full = {"hard": {"pods": "1"}, "used": {"pods": "1"}}
    api.put("/api/v1/resourcequotas", "q", namespace="team-a", spec={"hard": full["hard"]}, status=full)
    one.quotas.set(A, Quota("q", {"pods": Fraction(1)}, {"pods": Fraction(1)}))
    refused = await one.ask("u0")
    assert [reason.code for reason in refused.reasons] == [Code.RESOURCE_QUOTA_EXCEEDED]
    running = resident(1, uid="u1", tier="preemptible", version=7)
    one.world.set_pod(running)
    promoted = LedgerDecision(YES, InFlightCharge(running, Charge(A, Tier.GUARANTEED, gpus(1)), None))
    deadline = asyncio.get_running_loop().time() + 1
    assert await one.ledger.commit(lambda: promoted, deadline=deadline, is_gone=lambda: False) is YES
    assert [flight.pod.uid for flight in one.ledger.promotions()] == ["u1"]


async def test_of_two_requests_for_a_pod_one_disconnects_and_the_other_stays_charged(api, one):
    await one.ask("u0")
    api.faults["put"].append(held := Held())
    stays = asyncio.create_task(one.ask("u1"))
    assert isinstance(await one.ask("u1", seconds=0.05), Retry)
    held.go.set()
    assert await stays is YES
    await asyncio.sleep(0.05)
    assert in_flight(api) == ["u0", "u1"]


async def test_a_request_that_another_replica_answered_keeps_its_charge_where_the_first_caller_left(api, one, other):
    await one.ask("first")
    api.faults["put"].append(held := Held())
    writing = asyncio.create_task(one.ask("u0"))
    await until(lambda: api.count("put") == 1)
    assert isinstance(await one.ask("again", seconds=0.05), Retry), "it waits for the next write"
    assert await other.ask("again") is YES
    held.go.set()
    assert await writing is YES
    assert await one.ask("u1") is YES
    assert in_flight(api) == ["again", "first", "u0", "u1"]


async def test_an_object_of_another_name_is_ignored(api, one, connection):
    feed = Feed(connection, (one.ledger.kind(),), pace=FAST)
    api.put(PATH, "not-team-a", status={"team": "team-a"}, ledger={"folded": "999999", "inFlight": []})
    async with beside(feed.run()):
        await feed.wait_synced()
        assert await one.ask("u0") is YES


async def test_while_the_definition_is_missing_writes_are_retried_with_backoff(api, one):
    await one.ask("u0")
    del api.objects[PATH]["/team-a"]
    api.always["post"] = Answer(404)
    answer = await one.ask("u1", seconds=0.4)
    assert isinstance(answer, Retry)
    assert answer.reason.code is Code.LEDGER_UNAVAILABLE
    assert api.count("post") < 10
    api.always.clear()
    assert await one.ask("u2") is YES
    assert in_flight(api) == ["u0", "u2"]


async def test_a_pod_that_was_let_into_the_line_counts_until_the_watch_shows_it(one):
    enter_line = waiting("next")
    one.ledger.enter_line(enter_line)
    assert (one.world.waiting.count("team-a"), enter_line.uid in one.world.waiting) == (1, False)
    one.world.set_waiting(enter_line)
    assert (one.world.waiting.count("team-a"), enter_line.uid in one.world.waiting) == (1, True)
