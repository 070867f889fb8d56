"""ResourceQuotas as shares, and the policy that is printed for them."""

import json
from fractions import Fraction

import pytest
from click.testing import CliRunner

from webhook.cli.main import main
from webhook.core.model.amounts import ONE_GPU
from webhook.kube.workloads.unknown_kinds import shares_of
from webhook.policy.sections import BUILT_IN
from webhook.policy.watch import parse

GPU, MIG = "requests.nvidia.com/gpu", "requests.nvidia.com/mig-1g.5gb"


def quota(namespace="vision", name="gpus", *, hard, **spec):
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard, **spec}}


CASES = {
    "whole GPUs": ([quota(hard={GPU: "4", "requests.cpu": "64", "pods": "10"})], {"vision": 4}),
    "slices and whole ones add up": ([quota(hard={GPU: "2", MIG: "7"})], {"vision": 3}),
    "of two quotas the smaller counts": ([quota(hard={GPU: "8"}), quota(name="b", hard={GPU: "5"})], {"vision": 5}),
    "each namespace has its own": ([quota(hard={GPU: "1"}), quota("nlp", hard={GPU: 2})], {"nlp": 2, "vision": 1}),
    "a quota on cpu alone gives no share": ([quota(hard={"requests.cpu": "64"})], {}),
    "a part of a GPU": ([quota(hard={MIG: "3"})], {"vision": Fraction(3, 7)}),
}


@pytest.mark.parametrize("case", CASES)
def test_gpus_of_a_namespaces_quotas(case):
    found, want = CASES[case]
    shares = shares_of(found, BUILT_IN)
    assert {share.namespace: Fraction(share.gpus, ONE_GPU) for share in shares} == want
    assert not any(share.left_out for share in shares)


@pytest.mark.parametrize(
    ("found", "reported"),
    [
        (quota(hard={GPU: "4"}, scopes=["BestEffort"]), "scopes"),
        (quota(hard={GPU: "4"}, scopeSelector={"matchExpressions": []} | {"x": 1}), "scopes"),
        (quota(hard={"requests.example.com/gpu-half": "4"}), "`resources`"),
    ],
    ids=["for some pods only", "for some priorities only", "a GPU without a weight"],
)
def test_entries_without_a_counterpart_are_reported(found, reported):
    [share] = shares_of([found], BUILT_IN)
    assert share.gpus == 0
    assert reported in share.left_out[0]
    assert share.left_out[0].startswith("vision/gpus: ")


def run(*objects):
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    return CliRunner().invoke(main, ["policy", "from-quotas", "-"], input=listed)


def test_the_printed_policy_allows_what_the_quotas_allow():
    result = run(quota(hard={GPU: "4", MIG: "3"}), quota("nlp", hard={GPU: "2"}), {"kind": "ConfigMap"})
    assert result.exit_code == 0
    policy = parse({"policy.yaml": result.stdout.encode()}, origin="policy.yaml")
    want = {"nlp": 2 * ONE_GPU, "vision": 4 * ONE_GPU + 3 * ONE_GPU // 7}
    assert {team.name: team.gpus.guaranteed for team in policy.teams} == want
    assert {team.name: team.gpus.limit for team in policy.teams} == want


def test_without_a_quota_on_gpus_nothing_is_printed():
    result = run(quota(hard={GPU: "4"}, scopes=["BestEffort"]))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("left out: vision/gpus: nvidia.com/gpu: ")


@pytest.mark.parametrize("rubbish", ["{", '{"kind": "ResourceQuota", "spec": {"hard": {"pods": "many"}}}'])
def test_malformed_input_is_an_error(rubbish):
    result = CliRunner().invoke(main, ["policy", "from-quotas", "-"], input=rubbish)
    assert (result.exit_code, result.stdout) == (2, "")
