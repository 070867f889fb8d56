"""Charges are late by this process's own clock, from when it first saw them."""

import pytest

from tests.core.support import make
from webhook.cluster.ledger.ledger_writer import ChargeAges
from webhook.core.model.amounts import TeamName
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.quota.charges import InFlightCharge

UNSEEN = 60.0
CHARGE = Charge(TeamName("team-a"), Tier.PREEMPTIBLE, 1)
FLIGHT = InFlightCharge(make.resident(1, uid="u1"), CHARGE, None)


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def ages(clock):
    return ChargeAges(lambda: clock[0])


@pytest.mark.parametrize(
    ("more", "late_after"),
    [
        pytest.param({}, UNSEEN, id="a pod that does not appear"),
        pytest.param({"until": 5}, 2 * UNSEEN, id="room that is kept gets so long besides"),
        pytest.param({"lingers": 300}, 300, id="a pod that may still run on its node"),
    ],
)
def test_a_charge_is_late_after_its_time_and_not_before(ages, clock, more, late_after):
    flight = FLIGHT._replace(**more)
    ages.begin(flight.pod.uid)
    clock[0] += late_after
    assert not ages.is_late(flight, UNSEEN)
    clock[0] += 1
    assert ages.is_late(flight, UNSEEN)


def test_a_charge_that_was_never_seen_is_not_late_and_one_that_left_begins_again(ages, clock):
    clock[0] += 1000
    assert not ages.is_late(FLIGHT, UNSEEN)
    ages.keep([FLIGHT.pod.uid])
    clock[0] += 100
    ages.keep([FLIGHT.pod.uid])
    assert ages.is_late(FLIGHT, UNSEEN)
    ages.keep([])
    assert FLIGHT.pod.uid not in ages
    ages.keep([FLIGHT.pod.uid])
    assert not ages.is_late(FLIGHT, UNSEEN)
