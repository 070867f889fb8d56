"""Minimums have a team's share first; what is beyond another minimum gives way, and nothing else does."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import make
from tests.examples import examples
from webhook.core.model.amounts import WorkloadName
from webhook.core.model.constraints import Tier
from webhook.core.model.pod import NO_REPLICA, Replica
from webhook.core.tiers.tier_changes import NOTICED_SECONDS, Rank, ranks_of, tier_changes
from webhook.core.world.minimums import TIER_SECONDS

WEB, CHAT = WorkloadName("team-a/Deployment/web"), WorkloadName("team-a/Deployment/chat")
POLICY = make.policy(make.team(guaranteed=4, limit_=None))


def pod(uid, tier, replica=NO_REPLICA, *, count=1, **more):
    return make.resident(count, uid=uid, node="n0", tier=tier, replica=replica, is_ready=True, **more)


def replicas(workload, minimum, tiers, *, created=0):
    """Pods of a workload, `g` for each guaranteed and `p` for each preemptible one, the oldest first."""
    name = workload.rpartition("/")[2]
    kinds = {"g": "guaranteed", "p": "preemptible"}
    made = enumerate(tiers)
    return [pod(f"{name}{n}", kinds[each], Replica(workload, minimum), created=created + n) for n, each in made]


def world_of(*pods):
    return make.world(POLICY, [make.node(gpus=100)], list(pods))


def changes(place):
    return {change.pod.uid: str(change.charge.tier) for change in tier_changes(place.policy.teams[0], place)}


def test_a_minimum_takes_the_place_of_what_is_beyond_another():
    place = world_of(*replicas(WEB, 1, "gggg"), *replicas(CHAT, 2, "ppp", created=9))
    assert changes(place) == {
        "web3": "preemptible",
        "web2": "preemptible",
        "chat0": "guaranteed",
        "chat1": "guaranteed",
    }
    texts = [change.message.text for change in tier_changes(place.policy.teams[0], place)]
    assert texts[0].startswith("now preemptible: it is beyond its workload's minimum, and another workload's minimum")


def test_a_pod_whose_eviction_is_announced_stays_as_it_is_for_its_share_and_for_its_minimum():
    """Its owner could otherwise make it guaranteed by freeing the share, or by another minimum."""
    now = 1_000_000
    freed = [pod("o", "preemptible", notice_at=now + 30)]
    minimum = [*replicas(WEB, 1, "gggg"), *replicas(CHAT, 2, "ppp", created=9)]
    minimum[4] = minimum[4]._replace(notice_at=now + 30)
    for pods, want in ((freed, {}), (minimum, {"web3": "preemptible", "chat1": "guaranteed"})):
        place = world_of(*pods)
        place.tick(now)
        assert changes(place) == want
        place.tick(now + 30 + NOTICED_SECONDS)
        assert set(changes(place)) > set(want), "an announcement that was never carried out nor withdrawn"


def test_a_minimum_that_its_owner_swaps_with_another_all_the_time_changes_no_tier():
    place = world_of(*replicas(WEB, None, "gggg"), *replicas(CHAT, None, "pppp", created=9))
    place.minimums.set_scaler("web", WEB, 3)
    place.minimums.set_scaler("chat", CHAT, 1)
    assert changes(place) == {"web3": "preemptible", "chat0": "guaranteed"}
    for uid, tier in (("web3", "preemptible"), ("chat0", "guaranteed")):
        place.set_pod(place.pod(uid)._replace(tier_label=tier))
    for turn in range(1, 20):
        place.tick(1_000_000 + 18 * turn)
        place.minimums.set_scaler("web", WEB, 1 if turn % 2 else 3)
        place.minimums.set_scaler("chat", CHAT, 3 if turn % 2 else 1)
        assert changes(place) == {}
    place.tick(1_000_000 + 18 * turn + TIER_SECONDS)
    assert changes(place) == {
        "web1": "preemptible",
        "web2": "preemptible",
        "chat1": "guaranteed",
        "chat2": "guaranteed",
    }


def test_pods_without_a_minimum_neither_give_way_nor_take():
    assert changes(world_of(*(pod(f"o{n}", "guaranteed") for n in range(4)), *replicas(CHAT, 2, "ppp"))) == {}
    assert changes(world_of(*replicas(WEB, 1, "gggg"), pod("o", "preemptible"))) == {}


def test_a_minimum_of_all_replicas_takes_nothing():
    assert changes(world_of(*replicas(WEB, 1, "gggg"), *replicas(CHAT, 3, "ppp"))) == {}


def test_surplus_inside_the_share_stays_guaranteed():
    assert changes(world_of(*replicas(WEB, 1, "gg"), *replicas(CHAT, 1, "gg"))) == {}


def test_nothing_is_displaced_for_a_pod_that_would_not_fit_afterwards():
    large = [pod(f"c{n}", "preemptible", Replica(CHAT, 1), count=4) for n in range(2)]
    assert changes(world_of(*replicas(WEB, 1, "gggg"), *large)) == {}


def test_free_room_goes_to_minimums_before_older_pods_and_to_surplus_last():
    place = world_of(
        pod("kept", "guaranteed", count=2),
        pod("old", "preemptible", created=1),
        *replicas(CHAT, 1, "pp", created=5),
    )
    assert changes(place) == {"chat0": "guaranteed", "old": "guaranteed"}


def test_what_asked_for_a_tier_keeps_it():
    asked = [each._replace(requested_tier=Tier.GUARANTEED) for each in replicas(WEB, 1, "gggg")]
    assert changes(world_of(*asked, *replicas(CHAT, 1, "pp"))) == {}
    choice = [each._replace(requested_tier=Tier.PREEMPTIBLE) for each in replicas(CHAT, 1, "pp")]
    assert changes(world_of(*replicas(WEB, 1, "gggg"), *choice)) == {}


def test_the_oldest_are_the_minimum_whatever_their_tiers():
    place = world_of(*replicas(WEB, 2, "ppgp"))
    ranks = ranks_of(place.usage(POLICY.teams[0].name), place)
    assert ranks == {"web0": Rank.MINIMUM, "web1": Rank.MINIMUM, "web2": Rank.SURPLUS, "web3": Rank.SURPLUS}


def test_no_more_gives_way_than_is_needed():
    large = pod("web1", "guaranteed", Replica(WEB, 1), count=2, created=1)
    small = pod("web2", "guaranteed", Replica(WEB, 1), created=2)
    place = world_of(pod("web0", "guaranteed", Replica(WEB, 1)), large, small, *replicas(CHAT, 1, "pp", created=9))
    assert changes(place) == {"web2": "preemptible", "chat0": "guaranteed"}
    wide = [pod(f"c{n}", "preemptible", Replica(CHAT, 1), count=2, created=n) for n in range(2)]
    place = world_of(pod("web0", "guaranteed", Replica(WEB, 1)), large, small, *wide)
    assert changes(place) == {"web1": "preemptible", "c0": "guaranteed"}


pods = st.lists(
    st.tuples(st.sampled_from([WEB, CHAT, None]), st.sampled_from(["guaranteed", "preemptible"]), st.integers(1, 2)),
    max_size=8,
)


@examples(200)
@given(pods, st.integers(0, 4), st.integers(0, 4))
def test_a_second_pass_finds_nothing_and_no_pod_without_a_minimum_is_displaced(drawn, web, chat):
    least = {WEB: web, CHAT: chat}
    place = world_of()
    for number, (workload, tier, count) in enumerate(drawn):
        replica = NO_REPLICA if workload is None else Replica(workload, least[workload])
        place.set_pod(pod(f"u{number}", tier, replica, count=count, created=number))
    team = place.policy.teams[0]
    was_over = place.usage(team.name).guaranteed > team.gpus.guaranteed
    others = {f"u{n}" for n, (workload, tier, _) in enumerate(drawn) if workload is None and tier == "guaranteed"}
    found = tier_changes(team, place)
    demoted = {change.pod.uid for change in found if change.charge.tier is Tier.PREEMPTIBLE}
    assert was_over or demoted.isdisjoint(others)
    for change in found:
        place.set_pod(change.pod._replace(tier_label=str(change.charge.tier)))
    assert place.usage(team.name).guaranteed <= team.gpus.guaranteed
    assert tier_changes(team, place) == ()
