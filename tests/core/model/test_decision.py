"""What a decision says of room."""

import pytest

from tests.core.support.make import ALICE, node, pod, policy, pool, resident, team, world
from webhook.core.admission.admission import admit
from webhook.core.model.decision import Queue, lacks_room
from webhook.core.model.policy import OnLimit, OnNoRoom


@pytest.mark.parametrize(
    ("gpus", "limit", "line", "want"),
    [
        pytest.param(2, 20, {}, False, id="it has room"),
        pytest.param(3, 20, {}, True, id="admitted, and waits for room"),
        pytest.param(3, 20, {"on_no_room": OnNoRoom.QUEUE}, True, id="in the queue for room"),
        pytest.param(2, 3, {}, False, id="refused by a limit"),
        pytest.param(2, 3, {"on_limit": OnLimit.QUEUE}, False, id="in the queue for a limit"),
    ],
)
def test_a_decision_lacks_room_whatever_policy_does_about_that(gpus, limit, line, want):
    teams = policy(team(guaranteed=limit, limit_=limit, **line))
    decision = admit(pod(gpus), ALICE, world(teams, nodes=[node(gpus=4)], residents=[resident(2, node="n0")]))
    assert lacks_room(decision) is want
    assert isinstance(decision, Queue) is bool(line)


def test_a_pool_without_room_lacks_it():
    place = world(policy(team(), pools=(pool("all"),)), nodes=[node(gpus=4)], residents=[resident(2, node="n0")])
    assert lacks_room(admit(pod(3)._replace(pool="all"), ALICE, place))
