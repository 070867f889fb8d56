"""Beside ResourceQuotas: a pod is refused once, with one text, and a refused pod is not charged."""

import json

import pytest

from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, make_nodes, wait_for
from tests.scenarios.standing_fairgate import serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "1Gi"}
GPUS = "requests.nvidia.com/gpu"


def refusal(cluster, namespace, name, *, gpus):
    done = cluster.kubectl.run("create", "-n", namespace, "-f", "-", stdin=json.dumps(pod(name, gpus=gpus, **SIZE)))
    assert done.returncode != 0, done.stdout
    assert done.stderr.count("exceeded quota") == 1, done.stderr
    return done.stderr


def limit(cluster, fairgate, gpus):
    """Have a quota on GPUs in force; returns its path."""
    hard = {GPUS: str(gpus)}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
    cluster.kubectl.apply([quota], "-n", fairgate.team_a)
    path = f"/api/v1/namespaces/{fairgate.team_a}/resourcequotas/q"
    wait_for(cluster, lambda: "used" in cluster.api.get(path).get("status", {}), what="the quota in force")
    return path


def wait_refused(cluster, fairgate, name, *, gpus, text):
    """Wait until Fairgate knows what the quota says, and refuses a pod with this text."""
    wait_for(cluster, lambda: text in refusal(cluster, fairgate.team_a, name, gpus=gpus), what=text)


def test_where_both_are_exceeded_only_fairgate_speaks(cluster):
    """It is asked first, and the API server asks its own quota only of a pod that every webhook let pass."""
    make_nodes(cluster, 1, gpus=24)
    with serve_fairgate(cluster) as fairgate:
        limit(cluster, fairgate, 4)
        wait_refused(cluster, fairgate, "probe", gpus=5, text="(ResourceQuotaExceeded)")
        said = refusal(cluster, fairgate.team_a, "both", gpus=21)
        assert 'admission webhook "mutate.fairgate.dev" denied the request: exceeded quota: team a' in said
        assert "(TeamLimitExceeded)" in said
        assert fairgate.charged("a") == 0


def test_where_only_the_quota_is_exceeded_its_own_words_come_before_a_charge(cluster):
    make_nodes(cluster, 1, gpus=24)
    with serve_fairgate(cluster) as fairgate:
        limit(cluster, fairgate, 4)
        create_pod(cluster, fairgate.team_a, pod("first", gpus=3, **SIZE))
        wait_for(cluster, lambda: fairgate.charged("a") == 3, what="the first is charged")
        want = f"exceeded quota: q, requested: {GPUS}=2, used: {GPUS}=3, limited: {GPUS}=4 (ResourceQuotaExceeded)"
        wait_refused(cluster, fairgate, "more", gpus=2, text=want)
        before = fairgate.charged("a")
        assert "(ResourceQuotaExceeded)" in refusal(cluster, fairgate.team_a, "again", gpus=2)
        assert fairgate.charged("a") == before
        assert "again" not in json.dumps(fairgate.ledger("a")["ledger"])


def test_where_only_fairgates_limit_is_exceeded_the_quota_counts_nothing(cluster):
    make_nodes(cluster, 1, gpus=24)
    with serve_fairgate(cluster) as fairgate:
        path = limit(cluster, fairgate, 50)
        assert "(TeamLimitExceeded)" in refusal(cluster, fairgate.team_a, "more", gpus=21)
        assert cluster.api.get(path)["status"]["used"] == {GPUS: "0"}
