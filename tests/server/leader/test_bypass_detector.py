"""Pods that bypassed the webhook are reported once, and no others."""

import pytest

from tests.core.support.make import gpus, policy, resident, world
from webhook.core.model.amounts import Namespace, NodeName, TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.model.pod import NamespaceFacts
from webhook.core.quota.charges import InFlightCharge
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.server.leader.tiers import BypassDetector

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
def detector(place, reported):
    made = BypassDetector(place, ShadowLabels(place), report=lambda pod: reported.append(pod.uid), linger=pytest.fail)
    made.start()
    return made


def test_a_pod_without_our_label_is_reported_once_and_stored(detector, place, reported):
    detector.set_pod(BARE)
    detector.set_pod(BARE._replace(node=NodeName("n0"), is_terminating=True))
    assert reported == ["bare"]
    assert place.usage(TeamName("team-a")).total == gpus(1)
    detector.remove_pod(BARE.uid)
    assert place.usage(TeamName("team-a")).total == 0


def test_other_pods_are_not_reported(detector, place, reported):
    counted = resident(1, uid="counted", tier=None)
    place.assume(InFlightCharge(counted, Charge(TeamName("team-a"), Tier.PREEMPTIBLE, gpus(1)), None))
    for pod in (
        counted,
        resident(1, uid="labeled"),
        resident(0, uid="without GPUs", tier=None),
        resident(1, uid="exempt", tier=None, namespace="left-alone"),
    ):
        detector.set_pod(pod)
    assert reported == []


def test_a_force_deleted_pod_stays_charged(place):
    left = []
    detector = BypassDetector(place, ShadowLabels(place), report=pytest.fail, linger=left.append)
    for uid, node in (("bound", "n0"), ("waiting", None)):
        detector.set_pod(resident(1, uid=uid, node=node))
        detector.delete_pod(Uid(uid), is_watched=True)
    assert [flight.pod.uid for flight in left] == ["bound/lingers"]
    assert place.usage(TeamName("team-a")).reserved == gpus(1)


def test_existing_pods_are_returned_at_the_start(place, reported):
    detector = BypassDetector(
        place, ShadowLabels(place), report=lambda pod: reported.append(pod.uid), linger=pytest.fail
    )
    detector.set_pod(BARE)
    detector.set_pod(resident(1, uid="labeled"))
    assert [pod.uid for pod in detector.start()] == ["bare"]
    detector.set_pod(BARE._replace(node=NodeName("n0"), is_terminating=True))
    assert reported == []
