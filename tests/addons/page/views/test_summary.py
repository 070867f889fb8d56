"""The cluster in numbers: the same sums as elsewhere, in GPUs, and none of what a viewer may not see."""

from tests import builders as b
from tests.addons.page.support.pages import decided, named, policy_of, state_of, waiting
from tests.addons.page.support.pictures import cluster_objects, cluster_policy
from webhook.addons.page.live.readable import Readable
from webhook.addons.page.views.gpu_map import Shares
from webhook.addons.page.views.teams import EVERYTHING, Viewer


def pod(name, gpus, *, node="n1", tier="guaranteed", **more):
    labels = {"fairgate.dev/team": "vision", "fairgate.dev/tier": tier}
    return decided(b.pod(name, namespace="vision", gpus=gpus, node=node, labels=labels, **more), gpus=str(gpus))


def summary(objects, viewer=EVERYTHING):
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}}
    return Readable(state_of(named([namespace, *objects])), viewer).summary()


def test_the_numbers_of_a_cluster():
    nodes = [b.node("n1", gpus=8), b.node("n2", gpus=2, is_cordoned=True), b.node("n3", gpus=6, model="H100")]
    found = summary([*nodes, pod("a", 3), pod("b", 1, tier="preemptible"), waiting("w", gpus=4)])
    assert (found.capacity, found.free, found.used, found.preemptible) == ("16", "10", "4", "1")
    assert (found.pods_in_line, found.gpus_in_line, found.held, found.closed) == ("1 pod", "4", "0", "2")
    assert found.largest == (("6", "H100"), ("4", "nvidia.com/gpu")), "the model of n1 is not known"
    assert found.shares == Shares(guaranteed=18, preemptible=6, held=0, free=62)


def test_shares_of_a_gpu_count_as_what_they_are_of_it():
    found = Readable(state_of(cluster_objects(), policy=cluster_policy()), EVERYTHING).summary()
    assert dict(reversed(each) for each in found.largest)["Tesla-T4"] == "1", "four free pieces of a quarter"
    assert sum(found.shares) <= 100


def test_a_viewer_of_one_namespace_gets_the_sums_of_their_team_alone():
    nina = Viewer("nina", frozenset({"vision"}))
    found = summary([b.node("n1", gpus=8), pod("a", 3), waiting("w", gpus=4)], nina)
    assert (found.used, found.gpus_in_line) == ("3", "0"), "w is of another team"
    assert (found.capacity, found.free, found.held, found.largest, found.shares) == ("", "", "", (), None)


def test_an_empty_cluster_has_zeros():
    found = Readable(state_of([], policy=policy_of()), EVERYTHING).summary()
    assert (found.used, found.preemptible, found.pods_in_line, found.shares) == ("0", "0", "0 pods", None)
