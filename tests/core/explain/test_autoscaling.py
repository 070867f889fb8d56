"""What is said of autoscalers: which pools grow, and where policy and cluster do not agree."""

import pytest

from tests.core.support.make import node, policy, pool, world
from webhook.core.explain.pod_rows import autoscaling_problems, autoscaling_text
from webhook.core.model.node import Autoscaler

KARPENTER, CLUSTER_AUTOSCALER = Autoscaler
BROUGHT = {"karpenter.sh/nodepool": "cloud"}


def place(found, *, stated=None, labels=BROUGHT, has_pools=True):
    pools = (pool("a", node_selector=(("pool", "a"),), is_autoscaled=stated), pool("lab", is_autoscaled=False))
    made = world(policy(pools=pools if has_pools else ()), nodes=[node("n0", labels={"pool": "a", **labels})])
    made.autoscalers = frozenset(found)
    return made


@pytest.mark.parametrize(
    ("world_", "want"),
    [
        (place({KARPENTER}), "Karpenter; pools that grow: a; others: lab"),
        (place(set()), "none found; pools that grow: none; others: a, lab"),
        (
            place(set(Autoscaler), has_pools=False),
            "Cluster Autoscaler and Karpenter; pools that grow: all nodes; others: none",
        ),
    ],
)
def test_it_says_which_pools_grow(world_, want):
    assert autoscaling_text(world_) == want


@pytest.mark.parametrize(
    ("world_", "want"),
    [
        (place({KARPENTER}), []),
        (place({KARPENTER}, labels={}), []),
        (place({KARPENTER}, stated=True), []),
        (place({KARPENTER}, stated=False), ["is false, although Karpenter owns 1 GPU node of the pool"]),
        (place({CLUSTER_AUTOSCALER}), ["is not set, Cluster Autoscaler runs"]),
        (place({CLUSTER_AUTOSCALER}, stated=False), []),
        (place({CLUSTER_AUTOSCALER}, labels={"kops.k8s.io/instancegroup": "g"}), []),
        (place(set(), stated=False), []),
    ],
    ids=[
        "found",
        "static nodes beside Karpenter",
        "stated",
        "denied",
        "a group without a label",
        "one that is said to be static",
        "a group with a label",
        "no autoscaler",
    ],
)
def test_it_names_pools_of_which_policy_says_something_else(world_, want):
    found = [each.text for each in autoscaling_problems(world_) if each.pool.name == "a"]
    assert len(found) == len(want)
    assert all(text.startswith(begin) for text, begin in zip(found, want, strict=True)), found
