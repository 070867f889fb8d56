"""GPUs that would idle are borrowed: inside the share pods are guaranteed, beyond it they are preemptible."""

import pytest

from tests.control_plane.api import ApiError
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, make_nodes, wait_phase
from tests.scenarios.standing_fairgate import DECISION, TEAM, TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "6", "memory": "48Gi"}


def test_the_first_20_are_guaranteed_and_the_next_10_borrow(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, limit_a=40) as fairgate:
        for number in range(30):
            create_pod(cluster, fairgate.team_a, pod(f"p{number:02}", gpus=1, **SIZE))
        assert fairgate.tiers(fairgate.team_a) == ["guaranteed"] * 20 + ["preemptible"] * 10
        for number in range(30):
            wait_phase(cluster, fairgate.team_a, f"p{number:02}", "Running")
        labels = get_pod(cluster, fairgate.team_a, "p25")["metadata"]["labels"]
        assert (labels[TEAM], labels[TIER]) == ("a", "preemptible")


def test_no_user_changes_team_tier_or_decision_after_creation(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, limit_a=40) as fairgate:
        create_pod(cluster, fairgate.team_a, pod("p", gpus=1, labels={TIER: "preemptible"}, **SIZE))
        for change in (
            ["label", "--overwrite", "pod", "p", f"{TIER}=guaranteed"],
            ["label", "pod", "p", f"{TEAM}-"],
            ["annotate", "--overwrite", "pod", "p", f"{DECISION}=none"],
        ):
            refused = cluster.kubectl.run(*change, "-n", fairgate.team_a)
            assert refused.returncode != 0
            assert "(ProtectedKeyChanged)" in refused.stderr
        cluster.kubectl("label", "pod", "p", "mine=yes", "-n", fairgate.team_a)


def test_a_pod_can_request_never_to_borrow(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, limit_a=40) as fairgate:
        create_pod(cluster, fairgate.team_a, pod("half", gpus=10, **SIZE))
        create_pod(cluster, fairgate.team_a, pod("most", gpus=8, **SIZE))
        fairgate.wait_seen("a")
        with pytest.raises(ApiError, match=r"exceeded quota: team a, guaranteed share: requested 3, limit 20, used 18"):
            create_pod(cluster, fairgate.team_a, pod("firm", gpus=3, labels={TIER: "guaranteed"}, **SIZE))
