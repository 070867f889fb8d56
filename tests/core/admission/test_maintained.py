"""Pods that wait for nodes that operators change: the reasons, and what is not refused meanwhile."""

from dataclasses import replace

import pytest

from tests.core.support.maintained import DRIVER, MIG, ONE_G, WEIGHTS, live
from tests.core.support.make import ALICE, GPU, node, pod, resident
from tests.core.support.outcomes import outcome_of
from webhook.core.admission.admission import admit
from webhook.core.admission.pools import maintenance_texts
from webhook.core.model.amounts import PODS
from webhook.core.model.constraints import Effect, Taint
from webhook.core.model.decision import Queue
from webhook.core.model.demand import demand_of
from webhook.core.model.node import Maintenance
from webhook.core.model.reasons import Code
from webhook.core.placement.rejecting_nodes import ABSENT_SECONDS


@pytest.mark.parametrize("what", list(Maintenance))
def test_a_node_in_maintenance_gets_no_pod_and_is_the_reason_why_it_waits(what):
    place = live(node("n0", gpus=8, maintenance=what, is_cordoned=True))
    outcome, code, text = outcome_of(pod(4), place)
    assert (outcome, code) == ("waits", Code.NO_ROOM_NOW)
    assert text == (
        f"node n0 takes no new pods while its {what.value}: the pod waits; it fits on 1 node once empty and open"
    )
    place.set_node(node("n0", gpus=8))
    assert outcome_of(pod(4), place)[0] == "runs"


def test_where_kube_scheduler_would_use_it_all_the_same_the_pod_waits_in_line():
    """MIG manager neither cordons nor taints: a pod that came would keep it from partitioning the GPUs."""
    place = live(node("n0", gpus=8, maintenance=MIG))
    decision = admit(pod(4), ALICE, place)
    assert isinstance(decision, Queue)
    assert "node n0 takes no new pods while its GPUs are being repartitioned" in decision.reason.text
    place.set_pod(resident(8, node="n0"))
    assert outcome_of(pod(4), place)[0] == "waits", "it has no room for kube-scheduler either"


def test_other_nodes_are_used_and_their_lack_is_said_beside_it():
    place = live(
        node("n0", gpus=8, maintenance=DRIVER, is_cordoned=True),
        node("n1", gpus=8),
        node("n2", gpus=8, maintenance=MIG, is_cordoned=True),
    )
    assert outcome_of(pod(8), place)[0] == "runs"
    place.set_pod(resident(8, node="n1"))
    text = outcome_of(pod(8), place)[2]
    assert text.startswith(
        "no node has nvidia.com/gpu 8 free now, and node n0 takes no new pods while its driver is being upgraded, "
        "nor 1 other node in maintenance: the pod waits"
    )


def test_a_node_that_its_cordon_keeps_pods_off_is_named_beside_full_ones():
    """kube-controller-manager taints what is cordoned."""
    taint = Taint("node.kubernetes.io/unschedulable", Effect.NO_SCHEDULE)
    upgraded = node("n0", gpus=8, maintenance=DRIVER, is_cordoned=True, taints=(taint,))
    place = live(upgraded, node("n1", gpus=8))
    place.set_pod(resident(8, node="n1"))
    assert outcome_of(pod(8), place)[2].startswith(
        "no node has nvidia.com/gpu 8 free now, and node n0 takes no new pods while its driver is being upgraded"
    )
    alone = live(upgraded)
    assert outcome_of(pod(8), alone)[2].startswith("node n0 takes no new pods while its driver is being upgraded")


def test_through_a_repartitioning_a_pod_waits_for_what_the_node_offered():
    place = live(node("small", gpus=4), node("n0", gpus=8))
    place.set_node(node("n0", gpus=0, at_best={GPU: 8}, maintenance=MIG))
    _, code, text = outcome_of(pod(8), place)
    assert code == Code.NO_ROOM_NOW
    assert text.startswith("node n0 offers 0 of 8 nvidia.com/gpu now: its GPUs are being repartitioned: the pod waits")
    place.set_node(node("n0", gpus=0, maintenance=MIG))  # five minutes later
    place.tick(2_000 + 2 * ABSENT_SECONDS)
    place.tick(2_000 + 3 * ABSENT_SECONDS)
    outcome, code, text = outcome_of(pod(8), place)
    assert (outcome, code) == ("waits", Code.NO_ROOM_NOW)
    assert text == (
        "node n0 takes no new pods while its GPUs are being repartitioned: the pod waits; "
        "1 node that could hold it offered more before"
    )
    slices = {"demand": demand_of({ONE_G: 7, PODS: 1}, WEIGHTS)}
    assert outcome_of(pod(**slices), place)[0] == "waits", "what the node will offer"
    done = node("n0", gpus=0)
    place.set_node(replace(done, allocatable={**done.allocatable, ONE_G: 56}))
    assert outcome_of(pod(**slices), place)[0] == "runs"
    place.tick(2_000 + 4 * ABSENT_SECONDS + 1)
    place.tick(2_000 + 5 * ABSENT_SECONDS + 2)
    assert outcome_of(pod(8), place)[:2] == ("refused", Code.NEVER_FITS)


def test_nothing_is_refused_for_good_while_it_is_not_known_what_a_node_had():
    """A server that starts while the resource is gone."""
    place = live(node("small", gpus=4), node("n0", gpus=0, maintenance=MIG))
    outcome, code, text = outcome_of(pod(8), place)
    assert (outcome, code) == ("waits", Code.NO_ROOM_NOW)
    assert text.endswith("repartitioned: the pod waits; what 1 node will offer then is not known")
    place.set_node(node("n0", gpus=0))
    assert outcome_of(pod(8), place)[:2] == ("refused", Code.NEVER_FITS)


def test_each_node_is_listed_with_what_is_changed_on_it():
    place = live(node("n1", maintenance=DRIVER), node("n0", maintenance=MIG), node("n2"))
    assert [*maintenance_texts(place)] == ["n0 (its GPUs are being repartitioned)", "n1 (its driver is being upgraded)"]
    place.remove_node("n0")
    assert [*maintenance_texts(place)] == ["n1 (its driver is being upgraded)"]
