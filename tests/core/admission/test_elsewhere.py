"""Pods that others place under limits per GPU model."""

from dataclasses import replace

import pytest

from tests.core.support.make import (
    ALICE,
    pod,
    policy,
    world,
)
from tests.core.support.models import TEAM, of_model
from tests.core.support.outcomes import codes
from webhook.core.admission.admission import admit
from webhook.core.model.decision import NotApplicable, Retry
from webhook.core.model.pod import Handling
from webhook.core.model.reason import Code
from webhook.core.model.selector import Constraints


@pytest.mark.parametrize("handling", [Handling.NODE_NAME, Handling.FOREIGN_SCHEDULER, Handling.DAEMON_SET])
def test_an_unknown_node_is_retried(handling):
    place = world(policy(TEAM))
    named = pod(1, handling=handling, node_name="new")
    place.is_live = True
    place.set_namespace(place.tenancy("team-a").facts)
    assert isinstance(admit(named, ALICE, place), Retry)
    place.set_node(of_model("new", "H100"))
    told = admit(named, ALICE, place)
    assert isinstance(told, NotApplicable)
    assert told.charge.model == "H100"


def test_a_label_that_says_one_model_binds_to_it_only_where_nodes_agree():
    place = world(policy(TEAM), nodes=[of_model("h0", "H100"), of_model("t0", "T4")])
    lying = of_model("h1", "H100")
    place.set_node(replace(lying, labels={**lying.labels, "other": "T4"}))
    place.set_node(replace(of_model("t1", "T4"), model_label="other", labels={"other": "T4"}))
    asked = pod(3, handling=Handling.FOREIGN_SCHEDULER, constraints=Constraints(node_selector=(("other", "T4"),)))
    assert codes(admit(asked, ALICE, place)) == [Code.MODEL_LIMIT_EXCEEDED]
