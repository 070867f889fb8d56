"""Borrowers that the API server does not evict: they go another way, or others go instead of them."""

from contextlib import contextmanager, suppress

import pytest

from tests.control_plane.api import ApiError
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, make_nodes, wait_for, wait_phase
from tests.scenarios.evictor import alive, ask, evicted, evictor, fill, wait_bound
from tests.scenarios.standing_fairgate import TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

BORROW = {TIER: "preemptible"}
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
NOTICE = 2
GRACE = 30
BOUND = 120
"""Seconds beyond notice and grace period in which the waiting pod is bound, whatever the first victims answer."""


def path_of(namespace, name):
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def padded_by_owner(length):
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x" * length, "uid": "u"}
    return {"metadata": {"ownerReferences": [owner]}}


def saved_at(length):
    return {"metadata": {"annotations": {"fairgate.dev/checkpointed-at": "x" * length}}}


def fill_up(cluster, path, body_of, *, low, high):
    """Update an object with a body to which eight bytes more are refused; an update takes seconds."""
    begun = (low, high)
    while high - low > 8:
        middle = (low + high) // 2
        try:
            cluster.api.patch(path, body_of(middle))
        except ApiError:
            high = middle
        else:
            low = middle
    assert low > begun[0], "the largest is larger"
    assert high < begun[1], "the largest is smaller"


@contextmanager
def broken_webhook(cluster, namespace, *resources):
    """A foreign webhook that does not answer, and without which the API server carries nothing out."""
    rules = [
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": [operation], "resources": [resource]}
        for resource, operation in resources
    ]
    webhook = {
        "name": "broken.example.org",
        "clientConfig": {"url": "https://127.0.0.1:1/none"},
        "rules": rules,
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 3,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
    cluster.api.create(WEBHOOKS, {"metadata": {"name": "broken"}, "webhooks": [webhook]})
    try:
        yield
    finally:
        cluster.api.delete(f"{WEBHOOKS}/broken")


EVICTION = ("pods/eviction", "CREATE")
DELETION = ("pods", "DELETE")


def is_refused(cluster, namespace, name):
    """Whether the API server would not evict a pod now."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    with suppress(ApiError):
        path = f"{path_of(namespace, name)}/eviction"
        cluster.api.create(path, eviction | {"deleteOptions": {"dryRun": ["All"]}})
        return False
    return True


def test_a_borrower_that_is_padded_to_the_limit_of_etcd_is_evicted(cluster):
    make_nodes(cluster, 1, gpus=4)
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy=f"reclaim: {{notice: {NOTICE}s}}") as fairgate:
        (name,) = fill(cluster, fairgate.team_a, 1, gpus=4, labels=BORROW)
        path = path_of(fairgate.team_a, name)
        fill_up(cluster, path, padded_by_owner, low=1_000_000, high=1_600_000)
        with pytest.raises(ApiError, match="request is too large"):
            cluster.api.delete(path, {"gracePeriodSeconds": 0})
        with evictor(fairgate) as running:
            ask(cluster, fairgate.team_b, "b")
            wait_bound(cluster, fairgate.team_b, "b", timeout=NOTICE + GRACE + BOUND)
            assert len(running.said("plan")) == 1
            assert not running.said("eviction refused")


def test_a_borrower_that_is_padded_by_what_cannot_be_taken_away_is_evicted(cluster):
    """A container's environment and tolerations stay as they are: the statuses of its containers go instead."""
    make_nodes(cluster, 1, gpus=4)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate:
        made = pod("a", gpus=4, cpu="1", memory="4Gi", labels=BORROW)
        made["spec"]["containers"][0]["env"] = [{"name": "PAD", "value": "x" * 400_000}]
        create_pod(cluster, fairgate.team_a, made)
        wait_phase(cluster, fairgate.team_a, "a", "Running")
        path = path_of(fairgate.team_a, "a")
        own = get_pod(cluster, fairgate.team_a, "a")["spec"]["tolerations"]
        key = ".".join(["x" * 60] * 4)
        more = [{"key": f"{key}/k{n}", "operator": "Exists"} for n in range(3_600)]
        cluster.api.patch(path, {"spec": {"tolerations": [*own, *more]}})
        fill_up(cluster, path, saved_at, low=205_000, high=210_000)
        with pytest.raises(ApiError, match="request is too large"):
            cluster.api.delete(path, {"gracePeriodSeconds": 0})
        with evictor(fairgate) as running:
            ask(cluster, fairgate.team_b, "b")
            wait_bound(cluster, fairgate.team_b, "b", timeout=GRACE + BOUND)
            assert len(running.said("plan")) == 1


def test_a_borrower_is_deleted_where_a_foreign_webhook_fails_every_eviction(cluster):
    make_nodes(cluster, 1, gpus=4)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate:
        (name,) = fill(cluster, fairgate.team_a, 1, gpus=4, labels=BORROW)
        with broken_webhook(cluster, fairgate.team_a, EVICTION), evictor(fairgate) as running:
            wait_for(cluster, lambda: is_refused(cluster, fairgate.team_a, name), what="the webhook is in force")
            ask(cluster, fairgate.team_b, "b")
            wait_bound(cluster, fairgate.team_b, "b", timeout=GRACE + BOUND)
            (line,) = running.said("evicted")
            assert (line["name"], line["is_deleted"]) == (name, True)


def test_another_borrower_goes_where_a_foreign_webhook_fails_evictions_and_deletions(cluster):
    make_nodes(cluster, 2, gpus=4)
    with serve_fairgate(
        cluster, limit_a=40, limit_b=40, policy=f"reclaim: {{notice: {NOTICE}s, order: [age]}}"
    ) as fairgate:
        good = fill(cluster, fairgate.team_b, 4, prefix="good", labels=BORROW)
        bad = fill(cluster, fairgate.team_a, 4, prefix="bad", labels=BORROW)
        with broken_webhook(cluster, fairgate.team_a, EVICTION, DELETION), evictor(fairgate) as running:
            wait_for(cluster, lambda: is_refused(cluster, fairgate.team_a, bad[0]), what="the webhook is in force")
            ask(cluster, fairgate.team_b, "b", gpus=1, labels={TIER: "guaranteed"})
            wait_bound(cluster, fairgate.team_b, "b", timeout=2 * NOTICE + GRACE + BOUND)
            refused = running.said("eviction refused")
            assert {line["obstacle"] for line in refused} <= {"failure"}
            assert len(running.said("plan")) <= 2
            assert len(evicted(cluster, fairgate.team_b, good)) == 1
            assert alive(cluster, fairgate.team_a) == bad
