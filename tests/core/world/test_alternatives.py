"""Which alternative of a claim decides where a pod goes: what is free, then what could be."""

from dataclasses import replace

import pytest

from tests.core.support import make
from tests.core.support.claims import GPU_CLASS, SHARED, SHARING, bare, world
from webhook.core.devices.claim_users import ClassCount, DeviceRequest
from webhook.core.model.constraints import NO_CONSTRAINTS
from webhook.core.model.demand import Demand
from webhook.core.world.alternatives import by_room

GPU = GPU_CLASS.implicit_resource
EITHER = (DeviceRequest((ClassCount(GPU_CLASS.name, 3), ClassCount(GPU_CLASS.name, 1))),)


def place(*free):
    """A world with nodes of three devices each, of which so many are free."""
    made = world()
    for number, left in enumerate(free):
        found = make.node(f"n{number}", gpus=0)
        made.set_node(replace(found, allocatable={**found.allocatable, GPU: 3}))
        made.fleet.take(found.name, Demand(0, (), ((GPU, 3 - left),)))
    made.set_claim(SHARED, EITHER)
    return made


@pytest.mark.parametrize(
    ("free", "want"),
    [((3, 1), 3), ((1, 2), 1), ((0, 0), 3)],
    ids=["the first that is free", "the second where the first is not", "without room the first that could be"],
)
def test_the_first_alternative_with_room_counts(free, want):
    made = place(*free)
    pod = make.pod(demand=bare(), claims=(SHARING,))
    demand = by_room(pod, NO_CONSTRAINTS, made)
    assert dict(demand.requests)[GPU] == want
    assert demand.devices == ()  # the commit compares them with the decision's, and what is free may change between
    assert demand.gpus == make.demand(3).gpus  # it is charged for the most expensive one
