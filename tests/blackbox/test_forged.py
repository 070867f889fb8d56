"""A decision cannot be forged: the decision on the pod must be the one that the policy results in."""

import copy
import json

import pytest

from tests.blackbox.fuzzing import NODES, POLICY, patched
from tests.blackbox.in_process import InProcess
from tests.blackbox.objects import DECISION, pod, review
from tests.builders import decision_of

TERMS = ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


@pytest.fixture(scope="module")
def reviewer(tmp_path_factory):
    return InProcess(tmp_path_factory.mktemp("reviewer"), POLICY, NODES)


def decided(reviewer, **how):
    """A review of a pod that has passed the mutating webhook."""
    manifest = pod("p", "team-a", gpus=2, **how)
    manifest["metadata"]["annotations"] = {"fairgate.dev/requires": "nvlink"} if not how else {}
    sent = review(manifest, uid="u")
    return patched(sent, reviewer.ask("/mutate", sent)["response"])


def validated(reviewer, sent):
    return reviewer.ask("/validate", sent | {"request": sent["request"] | {"dryRun": True}})["response"]


def remarked(manifest, **changes):
    mark = decision_of(manifest) | changes
    manifest["metadata"]["annotations"][DECISION] = json.dumps({k: v for k, v in mark.items() if v is not None})


def free_of_nodes(manifest):
    remarked(manifest, mode="off", nodes=[])
    del manifest["spec"]["affinity"]


def preferring(manifest):
    remarked(manifest, mode="prefer")
    del manifest["spec"]["affinity"]["nodeAffinity"][TERMS[1]]


def free_of_pools(manifest):
    remarked(manifest, pool=None, nodes=[])
    del manifest["spec"]["affinity"], manifest["spec"]["nodeSelector"]


def free_of_the_pools_affinity(manifest):
    for term in manifest["spec"]["affinity"]["nodeAffinity"][TERMS[1]]["nodeSelectorTerms"]:
        del term["matchExpressions"]


def on_another_node(manifest):
    remarked(manifest, nodes=["n1"])


def in_another_pool(manifest):
    remarked(manifest, pool="t4")


def for_less(manifest):
    remarked(manifest, demand={"nvidia.com/gpu": "1"}, gpus="1")


def for_another_user(manifest):
    remarked(manifest, user="bob")


def of_another_team(manifest):
    manifest["metadata"]["labels"]["fairgate.dev/team"] = "b"


def one_node_more(manifest):
    terms = manifest["spec"]["affinity"]["nodeAffinity"][TERMS[1]]["nodeSelectorTerms"]
    other = copy.deepcopy(terms[0])
    other["matchFields"][0]["values"] = ["n3"]
    terms.append(other)


def one_node_more_as_older_versions_wrote_it(manifest):
    remarked(manifest)
    one_node_more(manifest)


def one_node_less(manifest):
    del manifest["spec"]["affinity"]["nodeAffinity"][TERMS[1]]["nodeSelectorTerms"][-1]


def without_the_nodes(manifest):
    del manifest["spec"]["affinity"]["nodeAffinity"][TERMS[1]]


def on_any_node_too(manifest):
    terms = manifest["spec"]["affinity"]["nodeAffinity"][TERMS[1]]["nodeSelectorTerms"]
    terms.append({key: value for key, value in terms[0].items() if key != "matchFields"})


FORGERIES = [
    free_of_nodes,
    preferring,
    free_of_pools,
    free_of_the_pools_affinity,
    on_another_node,
    in_another_pool,
    for_less,
    for_another_user,
    of_another_team,
    one_node_more,
    one_node_more_as_older_versions_wrote_it,
    one_node_less,
    without_the_nodes,
    on_any_node_too,
]


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_a_changed_decision_is_refused(reviewer, forge):
    sent = decided(reviewer)
    assert validated(reviewer, sent)["allowed"]
    forge(sent["request"]["object"])
    refused = validated(reviewer, sent)
    assert not refused["allowed"]
    assert refused["status"]["code"] == 403
    assert "MutationAltered" in refused["status"]["message"]


def test_a_pod_that_waits_for_any_pool_stays_inside_the_pools(reviewer):
    containers = pod("p", "x", gpus=2)["spec"]["containers"]
    containers[0]["resources"]["limits"]["example.com/not-listed-yet"] = "1"
    sent = decided(reviewer, containers=containers)
    manifest = sent["request"]["object"]
    terms = manifest["spec"]["affinity"]["nodeAffinity"][TERMS[1]]["nodeSelectorTerms"]
    assert len(terms) == 2
    assert validated(reviewer, sent)["allowed"]
    terms.append({"matchExpressions": [{"key": "zone", "operator": "Exists"}]})
    refused = validated(reviewer, sent)
    assert "allow nodes outside of the pools open to it (a100, t4)" in refused["status"]["message"]


@pytest.mark.parametrize("changes", [{"nodes": []}, {"nodes": [], "model": None}, {"model": "Tesla-T4"}])
def test_a_limit_of_one_model_is_not_escaped(reviewer, changes):
    manifest = pod("p", "team-b", gpus=2)
    manifest["metadata"]["annotations"] = {"fairgate.dev/pool": "a100"}
    sent = review(manifest, uid="u")
    sent = patched(sent, reviewer.ask("/mutate", sent)["response"])
    assert validated(reviewer, sent)["allowed"]
    manifest = sent["request"]["object"]
    remarked(manifest, **changes)
    for term in manifest["spec"]["affinity"]["nodeAffinity"][TERMS[1]]["nodeSelectorTerms"]:
        term["matchExpressions"] = [one for one in term["matchExpressions"] if one["key"] == "memory"]
        if "model" not in changes or not changes.get("nodes", True):
            term.pop("matchFields")
    refused = validated(reviewer, sent)
    assert not refused["allowed"]
    assert "other GPU models" in refused["status"]["message"]


def test_a_pod_that_no_node_matches_is_not_a_forgery(reviewer):
    """An empty term matches no node; an autoscaler may still add one, so the pod is admitted unchanged and waits."""
    containers = pod("p", "x", gpus=2)["spec"]["containers"]
    containers[0]["resources"]["limits"]["example.com/not-listed-yet"] = "1"
    nowhere = {TERMS[0]: {TERMS[1]: {TERMS[2]: [{}]}}}
    sent = decided(reviewer, affinity=nowhere, containers=containers)
    assert "patch" not in reviewer.ask("/mutate", sent)["response"]
    assert validated(reviewer, sent)["allowed"]


def test_a_forged_decision_is_replaced_by_the_mutating_webhook(reviewer):
    sent = decided(reviewer)
    free_of_nodes(sent["request"]["object"])
    advice = reviewer.ask("/mutate", sent)["response"]
    assert advice["allowed"]
    assert validated(reviewer, patched(sent, advice))["auditAnnotations"]["nodes"] == "n0"
