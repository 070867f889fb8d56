"""Room that the evictor keeps for a waiting pod is nobody else's, whatever he tolerates."""

import pytest

from tests.core.support import make
from webhook.core.admission.admission import admit
from webhook.core.model.decision import Admit, Deny
from webhook.core.model.pod import Handling
from webhook.core.model.reason import Code
from webhook.core.model.selector import HELD, Constraints, Effect, Taint, Toleration

TAINT = Taint(HELD, Effect.NO_SCHEDULE, "h1")
EVERYTHING = Constraints(tolerations=(Toleration(exists=True),))
OURS = Constraints(tolerations=(Toleration(HELD, value="h1", effect=Effect.NO_SCHEDULE),))


def town():
    return make.world(nodes=[make.node("n0", taints=(TAINT,)), make.node("n1")])


@pytest.mark.parametrize("constraints", [Constraints(), EVERYTHING], ids=["nothing", "everything"])
def test_nobody_is_sent_to_a_held_node(constraints):
    decision = admit(make.pod(constraints=constraints), make.ALICE, town())
    assert isinstance(decision, Admit)
    assert decision.steering.nodes == ("n1",)


@pytest.mark.parametrize("handling", [Handling.MANAGED, Handling.NODE_NAME])
def test_a_pod_cannot_let_itself_in(handling):
    decision = admit(make.pod(constraints=OURS, handling=handling), make.ALICE, town())
    assert isinstance(decision, Deny)
    assert [reason.code for reason in decision.reasons] == [Code.HELD_ROOM]


def test_whom_the_room_is_kept_for_may_use_it():
    world = town()
    assert world.fleet.matching(OURS) == world.fleet.bit("n0") | world.fleet.bit("n1")
