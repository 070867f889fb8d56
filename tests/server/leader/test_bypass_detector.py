"""Pods that came past the gate are reported once, and only they."""

from dataclasses import replace

import pytest

from tests.core.support.make import gpus, policy, resident, world
from webhook.core.model.decision import Charge
from webhook.core.model.names import Namespace, TeamName, Uid
from webhook.core.model.pod import NamespaceFacts
from webhook.core.model.tier import Tier
from webhook.core.quota.in_flight import InFlightCharge
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.server.leader.bypass_detector import Witness

BARE = resident(1, uid="bare", tier=None)


@pytest.fixture
def place():
    made = world(policy())
    made.set_namespace(NamespaceFacts(Namespace("left-alone"), labels={"fairgate.dev/exempt": "true"}))
    return made


@pytest.fixture
def reported():
    return []


@pytest.fixture
def witness(place, reported):
    made = Witness(place, ShadowLabels(place), report=lambda pod: reported.append(pod.uid), linger=pytest.fail)
    made.open()
    return made


def test_a_pod_without_our_label_is_reported_once_and_kept(witness, place, reported):
    witness.set_pod(BARE)
    witness.set_pod(replace(BARE, is_terminating=True))
    assert reported == ["bare"]
    assert place.usage(TeamName("team-a")).total == gpus(1)
    witness.remove_pod(BARE.uid)
    assert place.usage(TeamName("team-a")).total == 0


def test_others_are_not(witness, place, reported):
    counted = resident(1, uid="counted", tier=None)
    place.assume(InFlightCharge(counted, Charge(TeamName("team-a"), Tier.PREEMPTIBLE, gpus(1)), None))
    for pod in (
        counted,
        resident(1, uid="labelled"),
        resident(0, uid="without GPUs", tier=None),
        resident(1, uid="exempt", tier=None, namespace="left-alone"),
    ):
        witness.set_pod(pod)
    assert reported == []


def test_what_a_pod_leaves_on_its_node_is_assumed_and_told(place):
    left = []
    witness = Witness(place, ShadowLabels(place), report=pytest.fail, linger=left.append)
    for uid, node in (("bound", "n0"), ("waiting", None)):
        witness.set_pod(resident(1, uid=uid, node=node))
        witness.lose_pod(Uid(uid))
    assert [flight.pod.uid for flight in left] == ["bound/lingers"]
    assert place.usage(TeamName("team-a")).reserved == gpus(1)


def test_those_that_were_there_before_are_told_at_once(place, reported):
    witness = Witness(place, ShadowLabels(place), report=lambda pod: reported.append(pod.uid), linger=pytest.fail)
    witness.set_pod(BARE)
    witness.set_pod(resident(1, uid="labelled"))
    assert [pod.uid for pod in witness.open()] == ["bare"]
    witness.set_pod(replace(BARE, is_terminating=True))
    assert reported == []
