"""What HorizontalPodAutoscalers scale, and to what."""

import json

import msgspec
import pytest

from webhook.kube.workloads.scalers import Autoscaler, Scaling, scaling_of


def read(**spec):
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}, "maxReplicas": 9, **spec}
    made = {"metadata": {"name": "h", "namespace": "a"}, "spec": spec}
    return scaling_of(msgspec.json.decode(json.dumps(made), type=Autoscaler))


@pytest.mark.parametrize(("least", "want"), [(None, 1), (0, 0), (3, 3), (-5, 0), (2**31, 99_999)])
def test_the_least_replicas_are_read_within_bounds(least, want):
    assert read(minReplicas=least) == Scaling("a/Deployment/web", want)


def test_the_api_servers_default_is_one():
    assert read().minimum == 1


def test_a_name_too_long_is_not_read():
    assert read(scaleTargetRef={"kind": "Deployment", "name": "w" * 400}) is None
