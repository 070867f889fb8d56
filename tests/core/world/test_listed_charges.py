"""Charges that ledgers list count once in a world that is only read, and those of pods in line take their room."""

from dataclasses import replace

from tests.core.support.make import gpus, node, pod, resident, world
from webhook.core.model.amounts import NodeName, TeamName, Uid
from webhook.core.model.constraints import HELD, Effect, Taint, Tier
from webhook.core.model.decision import Charge
from webhook.core.quota.charges import flight_of
from webhook.core.world.listed_charges import ListedCharges, assume_charges
from webhook.core.world.waiting_pods import WaitingPod

A = TeamName("team-a")
HELD_NODE = replace(node("n1"), taints=(Taint(HELD, Effect.NO_SCHEDULE, "h1"),))


def waiting(**more):
    return WaitingPod(pod(8, uid=Uid("w"), name="w"), A, user="ann", **more)


def flight(uid="w", count=8):
    charge = Charge(A, Tier.GUARANTEED, gpus(count), None, "ann")
    return flight_of(pod(count, uid=Uid(uid), name=uid), charge)


def test_a_listed_charge_counts_until_its_ledger_lists_it_no_longer():
    place = world()
    charges = ListedCharges(place)
    charges.set("team-a", {Uid("w"): flight(), Uid("x"): flight("x", 2)})
    charges.set("department-lab", {Uid("w"): flight()})
    assert place.usage(A).reserved == gpus(10)
    charges.set("team-a", {})
    assert place.usage(A).reserved == gpus(8), "the other ledger lists it"
    charges.set("department-lab", {})
    assert place.usage(A).total == 0


def test_a_pod_that_was_read_counts_once():
    place = world(residents=[resident(8, uid="w", node="n0")])
    assume_charges(place, [flight()])
    assert (place.usage(A).total, place.usage(A).reserved) == (gpus(8), 0)


def test_a_charged_pod_in_line_is_both_and_has_the_node_that_keeps_its_room():
    place = world(nodes=[node("n0"), HELD_NODE])
    place.set_waiting(waiting(holds=("h0", "h1")))
    assume_charges(place, [flight()])
    assert place.node_of(Uid("w")) == NodeName("n1")
    assert (place.waiting.charged(A), place.waiting.uncharged(A)) == ((1, gpus(8)), (0, 0))
    place.drop_reservation(Uid("w"))
    assert (place.waiting.charged(A), place.waiting.uncharged(A)) == ((0, 0), (1, gpus(8)))


def test_without_ledgers_a_pod_is_charged_whose_room_a_node_keeps():
    place = world(nodes=[node("n0"), HELD_NODE])
    place.set_waiting(waiting(holds=("h1",)))
    assume_charges(place, None)
    assert (place.usage(A).reserved, place.usage(A).guaranteed) == (gpus(8), gpus(8))
    assert place.usage(A).user("ann") == gpus(8)


def test_without_ledgers_a_pod_whose_hold_ended_is_not_charged():
    place = world(nodes=[node("n0")])
    place.set_waiting(waiting(holds=("h1",)))
    assume_charges(place, None)
    assert place.usage(A).total == 0
