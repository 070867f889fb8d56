"""Which pods may have a place that is kept."""

import pytest

from tests.core.support.make import demand
from webhook.core.model.amounts import TeamName
from webhook.core.model.node import KeptPlace, controller_key


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        (demand(2), True),
        (demand(1), True),
        (demand(3), False),
        (demand(2, cpu=6001), False),
        (demand(2, **{"nvidia.com/mig-1g.5gb": 1}), False),
    ],
    ids=["equal", "smaller", "more GPUs", "more cpu", "another resource"],
)
def test_a_place_is_for_a_pod_that_takes_no_more(asked, want):
    place = KeptPlace("", "team-a/train", TeamName("team-a"), demand(2).requests)
    assert place.has_room_for(asked) is want


def test_controllers_of_one_name_differ_by_kind_and_namespace():
    keys = {controller_key(kind, space, "train") for kind in ("Job", "ReplicaSet") for space in ("a", "b")}
    assert len(keys) == 4
