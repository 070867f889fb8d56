"""While policy is not enforced, pods without a decision get shadow labels; afterwards only their real ones."""

from dataclasses import replace

import pytest

from tests.core.support import make
from webhook.core.model.constraints import Tier
from webhook.core.model.pod import Handling
from webhook.core.model.policy import Enforcement
from webhook.core.tiers.shadow_labels import ShadowLabels

SHADOW = make.policy(make.team(guaranteed=4, limit_=6), enforce=Enforcement.SHADOW)

STATIC = Handling.MIRROR


def bare(count=1, **more):
    return make.resident(count, tier=None, **more)


def seen(*pods, policy=SHADOW):
    shadow_labels = ShadowLabels(world := make.world(policy))
    for pod in pods:
        shadow_labels.set_pod(pod)
    shadow_labels.update_tiers(["team-a"])
    return shadow_labels, world


def tiers(world):
    return {pod.uid: pod.tier for pod in world.pods()}


def test_the_oldest_that_fit_would_be_guaranteed_in_any_order_of_events():
    pods = [bare(3, uid="young", created=9), bare(3, uid="old", created=1), bare(1, uid="small", created=10)]
    _, world = seen(*pods)
    assert tiers(world) == {"old": Tier.GUARANTEED, "young": Tier.PREEMPTIBLE, "small": Tier.GUARANTEED}
    book = world.usage("team-a")
    assert (book.total, book.guaranteed, list(world.without_decision())) == (make.gpus(7), make.gpus(4), [])


def test_a_pod_that_requests_preemptible_stays_preemptible():
    _, world = seen(bare(1, uid="p")._replace(tier_label="preemptible"))
    assert tiers(world) == {"p": Tier.PREEMPTIBLE}


def test_a_tier_stays_until_there_is_room():
    shadow_labels, world = seen(bare(4, uid="old", created=1), bare(4, uid="young", created=2))
    shadow_labels.set_pod(bare(4, uid="young", created=2, node="n0"))
    assert tiers(world) == {"old": Tier.GUARANTEED, "young": Tier.PREEMPTIBLE}
    shadow_labels.remove_pod("old")
    assert shadow_labels.update_tiers(["team-a"]) == ["young"]
    assert tiers(world) == {"young": Tier.GUARANTEED}


@pytest.mark.parametrize(
    "pod",
    [make.resident(1, tier="preemptible"), bare(1)._replace(handling=STATIC), bare(1, namespace="kube-system")],
    ids=["decided on", "static", "exempt"],
)
def test_other_pods_keep_their_labels(pod):
    exempting = replace(SHADOW, exempt_namespaces=("kube-system",))
    _, world = seen(pod, policy=exempting)
    assert [(each.team_label, each.tier_label) for each in world.pods()] == [(pod.team_label, pod.tier_label)]


def test_enforcing_policy_removes_shadow_labels_and_back():
    asked = bare(1, uid="asked", created=3)._replace(tier_label="preemptible")
    shadow_labels, world = seen(bare(3, uid="old", created=1), bare(3, uid="young", created=2), asked)
    world.set_policy(replace(SHADOW, enforce=Enforcement.ENFORCE))
    shadow_labels.relabel_all()
    assert {pod.uid: (pod.team_label, pod.tier_label) for pod in world.pods()} == {
        "old": (None, None),
        "young": (None, None),
        "asked": (None, "preemptible"),
    }
    assert set(world.without_decision()) == {"old", "young", "asked"}
    world.set_policy(SHADOW)
    shadow_labels.relabel_all()
    assert tiers(world) == {"old": Tier.GUARANTEED, "young": Tier.PREEMPTIBLE, "asked": Tier.PREEMPTIBLE}
