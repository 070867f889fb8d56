"""Externally placed pods: limits per GPU model and closed pools hold for them."""

from dataclasses import replace

import pytest

from tests.core.support.make import ALICE, GPU, node, pod, policy, pool, world
from tests.core.support.models import TEAM, of_model
from tests.core.support.outcomes import codes
from webhook.core.admission.admission import admit
from webhook.core.model.constraints import Constraints
from webhook.core.model.decision import NotApplicable, Retry
from webhook.core.model.pod import Handling
from webhook.core.model.reasons import Code


@pytest.mark.parametrize("handling", [Handling.NODE_NAME, Handling.FOREIGN_SCHEDULER, Handling.DAEMON_SET])
def test_an_unknown_node_is_retried(handling):
    place = world(policy(TEAM))
    named = pod(1, handling=handling, node_name="new")
    place.is_live = True
    place.set_namespace(place.tenancy("team-a").facts)
    assert isinstance(admit(named, ALICE, place), Retry)
    place.set_node(of_model("new", "H100"))
    decision = admit(named, ALICE, place)
    assert isinstance(decision, NotApplicable)
    assert decision.charge.model == "H100"


def test_a_label_that_says_one_model_binds_to_it_only_where_nodes_agree():
    place = world(policy(TEAM), nodes=[of_model("h0", "H100"), of_model("t0", "T4")])
    lying = of_model("h1", "H100")
    place.set_node(replace(lying, labels={**lying.labels, "other": "T4"}))
    place.set_node(replace(of_model("t1", "T4"), model_label="other", labels={"other": "T4"}))
    asked = pod(3, handling=Handling.FOREIGN_SCHEDULER, constraints=Constraints(node_selector=(("other", "T4"),)))
    assert codes(admit(asked, ALICE, place)) == [Code.MODEL_LIMIT_EXCEEDED]


POOLS = (
    pool("ours", node_selector=(("pool", "ours"),)),
    pool("theirs", node_selector=(("pool", "theirs"),), teams=frozenset({"team-b"})),
)


@pytest.mark.parametrize(
    ("node_name", "pinned", "want"),
    [
        pytest.param("o0", {}, None, id="the node is in an open pool"),
        pytest.param("t0", {}, Code.NO_POOL_ALLOWED, id="the node is in a closed pool"),
        pytest.param(None, {}, Code.NO_POOL_ALLOWED, id="another scheduler may choose either"),
        pytest.param(None, {"pool": "ours"}, None, id="the pod binds itself to an open pool"),
        pytest.param("free", {}, None, id="the node is in no pool"),
    ],
)
def test_a_closed_pool_is_closed_to_externally_placed_pods(node_name, pinned, want):
    nodes = [node("o0", labels={"pool": "ours"}), node("t0", labels={"pool": "theirs"}), node("free")]
    place = world(policy(pools=POOLS), nodes=nodes)
    handling = Handling.FOREIGN_SCHEDULER if node_name is None else Handling.NODE_NAME
    asked = pod(1, handling=handling, node_name=node_name, constraints=Constraints(tuple(pinned.items())))
    decision = admit(asked, ALICE, place)
    assert isinstance(decision, NotApplicable) if want is None else codes(decision) == [want]


def test_a_node_of_a_closed_pool_counts_while_it_offers_no_devices():
    """Else another scheduler's pod, created while a device plugin restarts, would run there afterwards."""
    closed = node("t0", gpus=0, at_best={GPU: 10}, labels={"pool": "theirs"})
    place = world(policy(pools=POOLS), nodes=[node("o0", labels={"pool": "ours"}), closed])
    asked = pod(1, handling=Handling.FOREIGN_SCHEDULER)
    assert codes(admit(asked, ALICE, place)) == [Code.NO_POOL_ALLOWED]
