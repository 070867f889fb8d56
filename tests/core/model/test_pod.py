"""What a pod, its requester and a running pod are, as decisions read them."""

import pytest

from tests.core.support.make import ALICE, JOB_CONTROLLER, demand, pod, resident
from webhook.core.model.constraints import Tier, pack
from webhook.core.model.demand import ClaimRef
from webhook.core.model.pod import Handling, Requester
from webhook.core.model.topology import AffinityRule, SpreadRule

APART = AffinityRule(("host",), True, None)
RATHER_APART = AffinityRule(("host",), True, None, weight=1)
TOGETHER = AffinityRule(("host",), False, None)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"claims": (ClaimRef(claim="c"),)}, id="claims"),
        pytest.param({"shares_by": "hami-scheduler"}, id="shares of devices"),
        pytest.param({"slices": ("nvidia.com/mig-1g.5gb",)}, id="slices"),
        pytest.param({"node_name": "n0"}, id="a node of its own"),
        pytest.param({"demand": demand(0, **{"x.dev/gpu": 1})}, id="a resource without a weight"),
    ],
)
def test_a_demand_depends_on_more_than_containers(more):
    assert pod(**more).needs_resolution
    assert not pod().needs_resolution


def test_only_required_rules_make_a_pod_wait():
    soft = pod(topology=(RATHER_APART, SpreadRule("zone", 1, False, None)))
    hard = pod(topology=(RATHER_APART, APART, TOGETHER))
    assert (soft.has_required_topology, hard.has_required_topology) == (False, True)
    assert (soft.anti_affinity_rules, hard.anti_affinity_rules) == ((), (APART,))


@pytest.mark.parametrize(("label", "want"), [(None, None), ("gold", None), ("preemptible", Tier.PREEMPTIBLE)])
def test_the_requested_tier_is_a_tier(label, want):
    assert pod(tier_label=label).requested_tier is want


@pytest.mark.parametrize(
    ("requester", "home", "is_kubelet"),
    [(ALICE, None, False), (JOB_CONTROLLER, "kube-system", False), (Requester("system:node:n0"), None, True)],
    ids=["a person", "a service account", "a kubelet"],
)
def test_requesters_are_known_by_their_names(requester, home, is_kubelet):
    assert (requester.home, requester.is_service_account, requester.is_kubelet) == (home, home is not None, is_kubelet)


@pytest.mark.parametrize(
    ("handling", "node", "want"),
    [
        pytest.param(Handling.MANAGED, None, True, id="placed by Fairgate"),
        pytest.param(Handling.FOREIGN_SCHEDULER, None, False, id="it waits for another scheduler"),
        pytest.param(Handling.FOREIGN_SCHEDULER, "n0", True, id="another scheduler placed it"),
        pytest.param(Handling.DAEMON_SET, "n0", True, id="a DaemonSet placed it"),
        pytest.param(Handling.MIRROR, "n0", False, id="a static pod"),
    ],
)
def test_externally_placed_pods_are_labeled_once_they_are_on_a_node(handling, node, want):
    assert resident(handling=handling, node=node).may_be_labeled is want


def test_a_tier_without_a_team_is_the_users_own_label():
    assert resident(tier="preemptible").tier is Tier.PREEMPTIBLE
    assert resident(tier="preemptible")._replace(team_label=None).tier is None


def test_labels_are_read_back_as_packed():
    assert resident(packed=pack({"app": "web"})).labels == {"app": "web"}
