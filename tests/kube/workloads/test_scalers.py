"""What HorizontalPodAutoscalers scale, and to what."""

import json

import msgspec
import pytest

from webhook.core.world.minimums import WHOLE
from webhook.kube.pod.devices import PodGroup
from webhook.kube.workloads.unknown_kinds import Autoscaler, Scaling, scaling_of, scaling_of_group


def read(**spec):
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}, "maxReplicas": 9, **spec}
    made = {"metadata": {"name": "h", "namespace": "a"}, "spec": spec}
    return scaling_of(msgspec.json.decode(json.dumps(made), type=Autoscaler))


@pytest.mark.parametrize(("least", "want"), [(None, 1), (0, 0), (3, 3), (-5, 0), (2**31, 99_999)])
def test_the_least_replicas_are_read_within_bounds(least, want):
    assert read(minReplicas=least) == Scaling("a/Deployment/web", want)


def test_the_api_servers_default_is_one():
    assert read().minimum == 1


def group(policy, **spec):
    made = {"metadata": {"name": "g", "namespace": "a"}, "spec": {"schedulingPolicy": policy, **spec}}
    return scaling_of_group(msgspec.json.decode(json.dumps(made), type=PodGroup))


@pytest.mark.parametrize(
    ("policy", "mode", "want"),
    [
        ({"gang": {"minCount": 4}}, {"disruptionMode": {"single": {}}}, 4),
        ({"gang": {"minCount": 4}}, {}, 4),
        ({"gang": {"minCount": 2**31}}, {}, 99_999),
        ({"gang": {"minCount": 4}}, {"disruptionMode": {"all": {}}}, WHOLE),
    ],
    ids=["single", "without a mode", "within bounds", "all"],
)
def test_a_pod_group_says_how_many_of_its_pods_stay_together(policy, mode, want):
    assert group(policy, **mode) == Scaling("a/PodGroup/g", want, is_gang=True)


def test_pods_of_a_basic_group_are_no_gang():
    assert group({"basic": {}}) is None
    assert group(None, disruptionMode={"all": {}}) is None


def test_a_name_too_long_is_not_read():
    assert read(scaleTargetRef={"kind": "Deployment", "name": "w" * 400}) is None
