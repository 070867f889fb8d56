"""The cluster in numbers: the same sums as elsewhere, in GPUs, and none of what a viewer may not see."""

from tests import builders as b
from tests.addons.page.support.pages import decided, named, policy_of, sample_objects, state_of, waiting
from tests.addons.page.support.pictures import cluster_objects, cluster_policy
from webhook.addons.page.live.readable import Readable
from webhook.addons.page.views.teams import EVERYTHING, Viewer
from webhook.core.model.amounts import ONE_GPU


def pod(name, gpus, *, node="n1", tier="guaranteed", **more):
    labels = {"fairgate.dev/team": "vision", "fairgate.dev/tier": tier}
    return decided(b.pod(name, namespace="vision", gpus=gpus, node=node, labels=labels, **more), gpus=str(gpus))


def filled(objects, **more):
    """A state whose rows are computed, as they are before a page is served."""
    state = state_of(objects, **more)
    list(state.changed_rows(state.take_dirty()))
    return state


def summary(objects, viewer=EVERYTHING):
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}}
    return Readable(filled(named([namespace, *objects])), viewer).summary()


def gpus(found):
    return {tile.kind: tile.gpus for tile in found.tiles}


def test_the_tiles_add_up_to_the_capacity():
    nodes = [b.node("n1", gpus=8), b.node("n2", gpus=2, is_cordoned=True), b.node("n3", gpus=6, model="H100")]
    pods = [pod("a", 3), pod("b", 1, tier="preemptible"), pod("c", 1, node="n2")]
    found = summary([*nodes, *pods, waiting("w", gpus=4)])
    assert found.capacity == "16"
    assert gpus(found) == {"guaranteed": "4", "preemptible": "1", "held": "0", "free": "10", "closed": "1"}
    assert (found.pods_in_line, found.gpus_in_line) == ("1 pod", "4")
    assert found.largest == (("6", "H100"), ("4", "nvidia.com/gpu")), "the model of n1 is not known"
    assert [tile.percent for tile in found.tiles] == [25, 6.25, 0, 62.5, 6.25]


def test_parts_of_gpus_are_whole_numbers_that_add_up_and_exact_beside():
    readable = Readable(filled(cluster_objects(), policy=cluster_policy()), EVERYTHING)
    found = readable.summary()
    assert dict(reversed(each) for each in found.largest)["Tesla-T4"] == "1", "four free pieces of a quarter"
    assert sum(int(tile.gpus) for tile in found.tiles) == int(found.capacity) == 196
    assert sum(float(tile.exact) for tile in found.tiles) == 196
    assert [tile.exact for tile in found.tiles if tile.kind == "preemptible"] == ["54.25"]
    inventory = readable.models()
    assert sum(each.capacity for each in inventory) == 196 * ONE_GPU, "as the table and metrics have it"
    assert sum(each.free for each in inventory) == float(found.tiles[3].exact) * ONE_GPU


def test_a_model_that_some_nodes_offer_whole_and_others_in_parts_is_named_once():
    found = Readable(filled(sample_objects()), EVERYTHING).summary()
    models = [model for _, model in found.largest]
    assert len(models) == len(set(models))
    assert b.A100 in models
    resources = [
        each.resource for each in Readable(filled(sample_objects()), EVERYTHING).models() if each.model == b.A100
    ]
    assert len(resources) > 1


def test_a_viewer_of_one_namespace_gets_the_sums_of_their_team_alone():
    nina = Viewer("nina", frozenset({"vision"}))
    found = summary([b.node("n1", gpus=8), pod("a", 3), waiting("w", gpus=4)], nina)
    assert gpus(found) == {"guaranteed": "3", "preemptible": "0"}
    assert found.gpus_in_line == "0", "w is of another team"
    assert (found.capacity, found.largest) == ("", ())


def test_an_empty_cluster_has_zeros():
    found = Readable(state_of([], policy=policy_of()), EVERYTHING).summary()
    assert (gpus(found), found.capacity, found.pods_in_line) == ({"guaranteed": "0", "preemptible": "0"}, "", "0 pods")
