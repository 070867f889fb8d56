"""Pods in line as reclaim sees them."""

from dataclasses import replace

import pytest

from tests.core.support.make import node, policy, pool, team, world
from tests.core.support.waiting import member, waiting
from webhook.core.model.amounts import NodeName, TeamName, User
from webhook.core.model.constraints import DomainRequest, Effect, Taint, Tier, Toleration
from webhook.core.model.decision import Charge
from webhook.core.quota.charges import flight_of
from webhook.core.starting.line_reclaim import as_charged

GOLD = Toleration("gold", exists=True)


def place():
    pools = (
        pool("plain", node_selector=(("pool", "plain"),)),
        pool("gold", node_selector=(("pool", "gold"),), tolerations=(GOLD,)),
    )
    gold = node("n1", labels={"pool": "gold"}, taints=(Taint("gold", Effect.NO_SCHEDULE),))
    return world(policy(team(), pools=pools), nodes=[node("n0", labels={"pool": "plain"}), gold])


def charge_on(found, name, *, tier=Tier.GUARANTEED, to="team-a"):
    charge = Charge(TeamName(to), tier, found.pod.demand.gpus, None, User("alice"))
    return flight_of(found.pod, charge, nodes=(NodeName(name),))._replace(takes_back=True)


def test_it_waits_like_a_guaranteed_pod_of_its_team_that_has_no_gate():
    found = waiting("p", 2, created=7)
    pod = as_charged(found, charge_on(found, "n0"), place())
    assert pod.is_waiting
    assert (pod.team, pod.pod.tier, pod.pod.user, pod.pod.created, pod.pod.node) == (
        "team-a",
        Tier.GUARANTEED,
        "alice",
        7,
        None,
    )
    assert pod.in_line is found
    assert pod.demand == found.pod.demand


@pytest.mark.parametrize(("name", "want"), [("n0", {"n0"}), ("n1", {"n1"}), ("gone", {"n0"})])
def test_it_may_use_the_pool_of_the_node_that_was_chosen_for_it(name, want):
    found, made = waiting("p"), place()
    constraints = as_charged(found, charge_on(found, name), made).constraints
    assert set(made.fleet.names_of(made.fleet.matching(constraints))) == want


def test_the_tolerations_of_its_pool_are_not_on_the_object_yet():
    found = waiting("p")
    pod = as_charged(found, charge_on(found, "n1"), place())
    assert pod.constraints.tolerations == (GOLD,)
    assert not pod.has_tolerations
    held = replace(found, holds=("h1",))
    assert as_charged(held, charge_on(held, "n1"), place()).has_tolerations


@pytest.mark.parametrize(
    "changed",
    [
        {"is_terminating": True},
        {"problem": "its owner made it unreadable"},
        {"team": TeamName("team-b")},
        {"pod": waiting("p").pod._replace(foreign_gates=("other",))},
        {"pod": waiting("p").pod._replace(pool="none")},
    ],
)
def test_nothing_is_evicted_for_one_that_may_not_start(changed):
    found = replace(waiting("p"), **changed)
    assert as_charged(found, charge_on(found, "n0"), place()) is None


def test_a_member_of_a_gang_is_planned_for_with_the_others_in_the_domain_that_they_ask_for():
    rack = DomainRequest("rack", is_required=True)
    found = member("p", size=4, domain=rack)
    pod = as_charged(found, charge_on(found, "n0"), place(), since=9)
    assert (pod.gang, pod.domain, pod.chosen, pod.report.since) == ("team-a/g", rack, ("n0",), 9)
    assert not pod.gang_size, "the leader charged as many as start together"


def test_nothing_is_evicted_for_one_that_borrows_or_starts_without_reclaim():
    found = waiting("p")
    assert as_charged(found, charge_on(found, "n0", tier=Tier.PREEMPTIBLE), place()) is None
    assert as_charged(found, charge_on(found, "n0")._replace(takes_back=False), place()) is None
