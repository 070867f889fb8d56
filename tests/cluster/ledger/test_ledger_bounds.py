"""Charges that outlive their pods, that must not be made, or that are too many for one write, over real HTTP."""

import asyncio

import msgspec
import pytest

from tests.cluster.support.fake_api import Answer
from tests.cluster.support.replica import PODS, YES, A, beside, in_flight
from tests.cluster.support.stores import until
from tests.core.support.make import gpus, policy, resident, team
from webhook.cluster.api.client import ApiError
from webhook.cluster.ledger.ledger import UPDATES_AT_ONCE
from webhook.cluster.ledger.ledger_objects import PATH, Result, TeamLedgerClient, result_of
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.model.reasons import Code
from webhook.core.quota.charges import InFlightCharge, LedgerDecision


def left_by(uid, *, lingers=35):
    pod = resident(1, uid=f"{uid}/lingers", namespace="team-a", node="n0", is_terminating=True)
    return InFlightCharge(pod, Charge(A, Tier.GUARANTEED, gpus(1)), "n0", lingers)


async def test_a_lingering_charge_is_written_and_found_by_a_later_replica(api, one, make):
    one.world.assume(left_by("u0"))
    one.ledger.linger(left_by("u0"))
    async with beside(one.ledger.reconcile(is_leader=lambda: True)):
        await until(lambda: PATH in api.objects and "/team-a" in api.objects[PATH] and in_flight(api))
    assert in_flight(api) == ["u0/lingers"]
    later = make()
    for number in range(4):
        await later.ask(f"u{number + 1}")
    assert in_flight(api) == ["u0/lingers", "u1", "u2", "u3"], "four is the limit"


async def test_a_lingering_charge_expires_in_the_object_and_before_it_is_written(api, one, other):
    for replica in (one, other):
        replica.world.assume(left_by("u0", lingers=4))
        replica.ledger.linger(left_by("u0", lingers=4))
    dropped = []
    async with (
        beside(other.ledger.reconcile(is_leader=lambda: False)),
        beside(one.ledger.reconcile(is_leader=lambda: True)),
        beside(one.ledger.drop_orphans(is_leader=lambda: True, report=dropped.append, unseen_seconds=0.05)),
    ):
        await until(lambda: "/team-a" in api.objects[PATH] and in_flight(api))
        await until(lambda: not in_flight(api))
        await until(lambda: not one.world.usage(A).total and not other.world.usage(A).total)
    assert api.count("get") == 0, "no pod is read: it is known to be gone"
    assert dropped == [], "it is no orphan"


async def test_kept_room_outlives_its_time_until_the_leader_could_report_its_end(api, one):
    """The same seconds end what a deleted pod left; room ends here only where no start loop ended it."""
    ended, room = left_by("u0", lingers=1), left_by("room", lingers=1)._replace(until=1)
    for flight in (ended, room):
        decision = LedgerDecision(YES, flight)
        deadline = asyncio.get_running_loop().time() + 30
        await one.ledger.commit(lambda decision=decision: decision, deadline=deadline, is_gone=lambda: False)
    async with beside(one.ledger.drop_orphans(is_leader=lambda: True, report=pytest.fail, unseen_seconds=0.4)):
        assert in_flight(api) == sorted(flight.pod.uid for flight in (ended, room))
        await until(lambda: in_flight(api) == [room.pod.uid])
        await until(lambda: not in_flight(api))


async def test_a_pod_with_a_taken_name_is_not_charged(api, one):
    api.put(PODS, "there", namespace="team-a", metadata={})
    one.known["team-a/there"] = "another"
    answer = await one.ask("there")
    assert (answer.reasons[0].code, answer.reasons[0].text) == (Code.ALREADY_EXISTS, 'pods "there" already exists')
    assert (api.count("post"), one.world.usage(A).total) == (0, 0)


async def test_a_name_that_is_taken_only_in_the_view_is_charged(api, one):
    one.known["team-a/gone"] = "another"
    assert await one.ask("gone") is YES
    api.faults["get"].append(Answer(500))
    one.known["team-a/who knows"] = "another"
    assert await one.ask("who knows") is YES
    assert in_flight(api) == ["gone", "who knows"]


async def test_a_write_that_is_too_large_is_split_and_delays_no_other(api, one):
    await one.ask("u0")
    api.faults["put"].extend([Answer(413)] * 2)
    answers = await asyncio.gather(*(one.ask(f"u{number}") for number in range(1, 4)))
    assert one.counts.results[:3] == ["written", "too_large", "too_large"]
    refused = [answer for answer in answers if answer is not YES]
    assert [answer.reason.code for answer in refused] == [Code.LEDGER_UNAVAILABLE], "the charge that is too large alone"
    assert len(in_flight(api)) == 3


async def test_an_object_that_would_be_too_large_is_not_sent(api, one, monkeypatch):
    await one.ask("u0")
    size = len(msgspec.json.encode(api.objects[PATH]["/team-a"]))
    monkeypatch.setattr("webhook.cluster.ledger.ledger_objects.MAX_LEDGER_BYTES", 2 * size)
    monkeypatch.setattr(TeamLedgerClient, "is_half_full", False)
    answers = await asyncio.gather(*(one.ask(f"u{number}" + "x" * size) for number in range(1, 4)))
    assert [answer is YES for answer in answers].count(True) == len(in_flight(api)) - 1
    assert "too_large" in one.counts.results


def test_etcds_message_for_a_large_write_is_recognized():
    assert result_of(ApiError("500 etcdserver: request is too large", status=500), is_new=False) is Result.TOO_LARGE
    assert result_of(ApiError("500 something else", status=500), is_new=False) is Result.UNKNOWN


async def test_objects_of_many_teams_are_updated_some_at_a_time_and_all_in_the_end(api, one):
    one.world.set_policy(policy(*(team(f"team-{number}") for number in range(2 * UPDATES_AT_ONCE + 5))))
    async with beside(one.ledger.reconcile(is_leader=lambda: True)):
        await until(lambda: len(one.counts.results) >= UPDATES_AT_ONCE, seconds=30)
        assert len(one.counts.results) == UPDATES_AT_ONCE, "the others wait for the next look"
        await until(lambda: len(api.objects[PATH]) == 2 * UPDATES_AT_ONCE + 5, seconds=30)
