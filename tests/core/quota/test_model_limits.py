"""Limits per GPU model hold for pods that wait: for those bound to a model, and for those that may still end on any."""

from dataclasses import replace

import pytest

from tests.core.support.make import (
    ALICE,
    commit,
    gpus,
    mutated,
    node,
    pod,
    policy,
    pool,
    requirement,
    resident,
    team,
    world,
)
from webhook.core.admission.admission import admit
from webhook.core.admission.verification import verify
from webhook.core.model.decision import Admit, Deny, NotApplicable, Retry
from webhook.core.model.names import ANY_MODEL
from webhook.core.model.pod import Handling
from webhook.core.model.policy import Share
from webhook.core.model.reason import Code
from webhook.core.model.selector import Constraints, Operator, Requirement

LABEL = "nvidia.com/gpu.product"
MODELS = {"H100": Share(limit=gpus(2)), "T4": Share(limit=gpus(8))}
TEAM = team(models=MODELS)


def of_model(name, model, **more):
    return node(name, model=model, model_label=LABEL, labels={LABEL: model}, **more)


def on(model):
    return Constraints(node_selector=((LABEL, model),))


def codes(decision):
    return [reason.code for reason in decision.reasons] if isinstance(decision, Deny) else decision


def test_a_pod_that_waits_for_a_model_counts_on_it_once_it_was_seen():
    place = world(policy(TEAM), nodes=[of_model("h0", "H100", gpus=0), of_model("t0", "T4")])
    place.set_pod(resident(2, uid="waits", model="H100"))
    assert (place.usage("team-a").model("H100"), place.usage("team-a").model("T4")) == (gpus(2), 0)
    assert codes(admit(pod(1, constraints=on("H100")), ALICE, place)) == [Code.MODEL_LIMIT_EXCEEDED]


def test_a_pod_without_a_model_counts_on_each_until_it_runs():
    place = world(policy(TEAM), nodes=[of_model("h0", "H100"), of_model("t0", "T4")])
    waits = resident(2, uid="waits", tier=None)
    place.set_pod(waits)
    assert [place.usage("team-a").model(model) for model in MODELS] == [gpus(2), gpus(2)]
    place.set_pod(replace(waits, node="t0"))
    assert [place.usage("team-a").model(model) for model in MODELS] == [0, gpus(2)]


def test_where_no_node_is_there_yet_every_model_must_have_room():
    place = world(policy(TEAM), nodes=[])
    first = admit(pod(2), ALICE, place)
    assert isinstance(first, Admit)
    assert first.charge.model == ANY_MODEL
    written = mutated(pod(2), first)
    committed = verify(written, ALICE, place)
    assert isinstance(committed, Admit)
    commit(place, written, committed.charge, None)
    assert codes(admit(pod(1), ALICE, place)) == [Code.MODEL_LIMIT_EXCEEDED]


def test_where_no_node_is_there_yet_a_pools_own_label_says_which_model_comes():
    pools = (pool("h", affinity=(requirement(LABEL, "In", "H100"),), is_autoscaled=True),)
    place = world(policy(TEAM, pools=pools), nodes=[of_model("t0", "T4")])
    first = admit(pod(2), ALICE, place)
    assert isinstance(first, Admit)
    assert first.charge.model == "H100"
    assert codes(admit(pod(3), ALICE, place)) == [Code.MODEL_LIMIT_EXCEEDED]


def test_a_list_of_nodes_without_a_model_excludes_those_with_one():
    place = world(policy(TEAM), nodes=[of_model("h0", "H100"), node("plain")], residents=[resident(2, node="h0")])
    decision = admit(pod(1, has_open_constraints=True), ALICE, place)
    assert isinstance(decision, Admit)
    assert decision.steering.pool_terms == ((Requirement(LABEL, Operator.DOES_NOT_EXIST),),)


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
