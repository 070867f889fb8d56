"""Which requests are sent to Fairgate: the conditions in CEL, evaluated."""

from dataclasses import replace

import pytest

from tests.kube.support.cel import holds
from webhook.core.model.constraints import Operator, Requirement
from webhook.core.model.policy import (
    BUILT_IN_RESOURCES,
    Defaults,
    LabelSelector,
    Policy,
    Pool,
    UnknownGpu,
)
from webhook.kube.registration.registration import gpu_pod_expression, of_gangs, pool_pod_expression


def pod(*containers, init=None, labels=None, annotations=None):
    metadata = {name: value for name, value in (("labels", labels), ("annotations", annotations)) if value is not None}
    spec = {"containers": list(containers)} | ({"initContainers": init} if init is not None else {})
    return {"metadata": metadata, "spec": spec}


GPU = "nvidia.com/gpu"
LIMITED = {"resources": {"limits": {GPU: "1"}}}
REQUESTED = {"resources": {"requests": {GPU: "1"}}}
PLAIN = {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}


@pytest.mark.parametrize(
    ("manifest", "want"),
    [
        (pod({}), False),
        (pod(PLAIN), False),
        (pod({"resources": {}}), False),
        (pod(LIMITED), True),
        (pod(REQUESTED), True),
        (pod(PLAIN, LIMITED), True),
        (pod(PLAIN, init=[]), False),
        (pod(PLAIN, init=[REQUESTED]), True),
        (pod(PLAIN, init=[PLAIN, {}]), False),
        (pod({"resources": {"limits": {"example.com/npu": "1"}}}), True),
        (pod({"resources": {"limits": {"example.com/input": "1"}}}), False),
        (pod({"resources": {"limits": {"aliyun.com/gpu-count": "1"}}}), True),
        (pod({"resources": {"limits": {"deviceclass.resource.kubernetes.io/fast": "1"}}}), True),
        (pod(PLAIN) | {"spec": {"containers": [PLAIN], "resourceClaims": [{"name": "gpus"}]}}, True),
    ],
)
def test_only_pods_with_a_counted_resource_are_sent(manifest, want):
    assert holds(gpu_pod_expression(Policy()), object=manifest) is want


def test_resource_names_come_from_the_policy():
    policy = Policy(resources={'odd"name\\.dev/gpu': 1, "example.com/npu": 1})
    odd = pod({"resources": {"limits": {'odd"name\\.dev/gpu': "1"}}})
    assert holds(gpu_pod_expression(policy), object=odd)
    assert holds(gpu_pod_expression(policy), object=pod(LIMITED)), "it must be refused, since it has no weight"
    named = replace(policy, ignored_resources=frozenset({GPU}))
    careless = replace(policy, defaults=Defaults(unknown_gpu=UnknownGpu.IGNORE))
    for lenient in (named, careless):
        assert holds(gpu_pod_expression(lenient), object=odd)
        assert not holds(gpu_pod_expression(lenient), object=pod(LIMITED))
    assert all(name in gpu_pod_expression(Policy()) for name in BUILT_IN_RESOURCES)


@pytest.mark.parametrize(
    ("requirement", "labels", "want"),
    [
        (Requirement("app", Operator.IN, ("kafka", "zk")), {"app": "kafka"}, True),
        (Requirement("app", Operator.IN, ("kafka",)), {"app": "web"}, False),
        (Requirement("app", Operator.IN, ("kafka",)), None, False),
        (Requirement("app", Operator.NOT_IN, ("web",)), None, True),
        (Requirement("app", Operator.NOT_IN, ("web",)), {"app": "web"}, False),
        (Requirement("app", Operator.EXISTS), {"app": ""}, True),
        (Requirement("app", Operator.EXISTS), {"tier": "x"}, False),
        (Requirement("app", Operator.DOES_NOT_EXIST), {"app": "x"}, False),
        (Requirement("app", Operator.DOES_NOT_EXIST), {"tier": "x"}, True),
    ],
)
def test_pods_without_gpus_that_match_a_pool_are_only_mutated(requirement, labels, want):
    policy = Policy(pools=(Pool("apart", match=LabelSelector((requirement,))), Pool("rest")))
    assert holds(pool_pod_expression(policy), object=pod(PLAIN, labels=labels)) is want
    assert not holds(gpu_pod_expression(policy), object=pod(PLAIN, labels=labels))


def test_a_policy_without_resources_selects_no_pod():
    assert gpu_pod_expression(Policy(resources={})) == "false"


@pytest.mark.parametrize(
    ("metadata", "want"),
    [
        ({"annotations": {"fairgate.dev/gang": "true"}}, True),
        ({"annotations": {"fairgate.dev/gang": "true"}, "ownerReferences": [{"name": "x"}]}, True),
        ({"annotations": {"fairgate.dev/gang": "true"}, "ownerReferences": [{"controller": True}]}, False),
        ({"annotations": {"fairgate.dev/gang": "false"}}, False),
        ({"annotations": {"other": "true"}}, False),
        ({}, False),
    ],
)
def test_workloads_that_are_gangs_are_sent_unless_a_controller_made_them(metadata, want):
    request = {"kind": {"group": "jobset.x-k8s.io", "kind": "JobSet"}}
    found = [holds(each["expression"], object={"metadata": metadata}, request=request) for each in of_gangs(Policy())]
    assert all(found) is want
