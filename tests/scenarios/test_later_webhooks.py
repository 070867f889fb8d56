"""Webhooks of other products that come after Fairgate's and change what a pod asks for: it is charged, or refused."""

import pytest

from tests.builders import decision_of
from tests.control_plane.api import ApiError
from tests.control_plane.objects import GPU, pod
from tests.control_plane.workbench import list_pods, make_nodes, wait_bound, wait_for
from tests.scenarios.foreign_webhook import foreign_webhook
from tests.scenarios.standing_fairgate import serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

LATER = "zzz-later"
"""The API server calls mutating configurations in the order of their names: this one after zz-fairgate."""


def asks(gpus):
    """A patch that sets the GPUs of a pod."""
    limits = {GPU: str(gpus)}
    return [{"op": "add", "path": "/spec/containers/0/resources", "value": {"requests": limits, "limits": limits}}]


def one_more(found):
    """A patch that adds a GPU each time it is asked for."""
    return asks(int(found["spec"]["containers"][0]["resources"]["limits"].get(GPU, 0)) + 1)


def gpus_of(found):
    return sum(int(each["resources"].get("limits", {}).get(GPU, 0)) for each in found["spec"]["containers"])


def created(cluster, namespace, made):
    """The pod, or the refusal's message."""
    try:
        return cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", made)
    except ApiError as error:
        return error.message


def settles(fairgate, namespace):
    """Wait until the charge is what the pods ask for that exist, and no more; return it."""
    total = sum(map(gpus_of, list_pods(fairgate.cluster, namespace)))
    wait_for(fairgate.cluster, lambda: fairgate.charged("a") == total, what=f"a charge of {total}", timeout=90)
    return total


def test_gpus_that_are_added_later_are_charged(cluster):
    """The API server calls Fairgate again after a change, which then decides on what the pod asks for by now."""
    make_nodes(cluster, 1)
    with (
        serve_fairgate(cluster) as fairgate,
        foreign_webhook(cluster, fairgate.team_a, lambda _: asks(3), name=LATER, again="Never") as seen,
    ):
        ours = fairgate.team_a
        made = created(cluster, ours, pod("p", gpus=1))
        assert (gpus_of(made), decision_of(made)["demand"]) == (3, {GPU: "3"})
        wait_bound(cluster, ours, "p")
        assert settles(fairgate, ours) == 3
        assert seen == ["p"]


def test_the_limit_holds_for_gpus_that_are_added_later(cluster):
    make_nodes(cluster, 1, gpus=32)
    with (
        serve_fairgate(cluster) as fairgate,
        foreign_webhook(cluster, fairgate.team_a, lambda _: asks(21), name=LATER, again="IfNeeded"),
    ):
        refusal = created(cluster, fairgate.team_a, pod("p", gpus=1))
        assert "exceeded quota: " in refusal
        assert "requested 21, limit 20" in refusal
        assert settles(fairgate, fairgate.team_a) == 0


def test_gpus_that_are_added_again_after_the_last_decision_are_refused(cluster):
    make_nodes(cluster, 1)
    with (
        serve_fairgate(cluster) as fairgate,
        foreign_webhook(cluster, fairgate.team_a, one_more, name=LATER, again="IfNeeded") as seen,
    ):
        refusal = created(cluster, fairgate.team_a, pod("p", gpus=1))
        assert "(MutationAltered)" in refusal, refusal
        assert seen == ["p", "p"]
        assert settles(fairgate, fairgate.team_a) == 0


def test_a_pod_without_gpus_that_gets_some_later_is_refused_with_the_reason(cluster):
    """Fairgate's conditions did not match it, so that the API server does not call it again."""
    make_nodes(cluster, 1)
    with (
        serve_fairgate(cluster) as fairgate,
        foreign_webhook(cluster, fairgate.team_a, lambda _: asks(2), name=LATER, again="Never"),
    ):
        refusal = created(cluster, fairgate.team_a, pod("p"))
        assert "did not pass Fairgate's mutating webhook" in refusal, refusal
        assert settles(fairgate, fairgate.team_a) == 0
