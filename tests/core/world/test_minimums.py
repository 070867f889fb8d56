"""What workloads are to keep, and what they have, whatever order events come in."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import make
from webhook.core.model.amounts import WorkloadName
from webhook.core.model.pod import NO_REPLICA, Replica
from webhook.core.world.minimums import MOST_SCALERS, TIER_SECONDS, WHOLE, Minimums, Replicas

WEB, CHAT = WorkloadName("team-a/Deployment/web"), WorkloadName("team-a/Deployment/chat")


def filled(*pods, minimum=None, ready=True):
    found = Minimums()
    for uid in pods:
        found.set_pod(uid, Replica(WEB, minimum), is_ready=ready)
    return found


def test_a_minimum_counts_only_where_there_are_more_pods():
    found = filled("a", "b", minimum=2)
    assert found.of(WEB) == Replicas(2, 2, 2)
    assert not found.of(WEB).has_surplus
    found.set_pod("c", Replica(WEB, 2), is_ready=False)
    assert found.of(WEB).has_surplus
    assert found.of(WEB).spare == 0, "the third is not ready"


def test_what_is_said_of_a_minimum_names_the_one_that_tiers_still_follow():
    found = filled("a", "b", "c")
    found.set_scaler("h", WEB, 1)
    assert found.for_tiers(WEB) == 1
    assert "keep the tiers" not in found.of(WEB).statement.text
    found.set_scaler("h", WEB, 2)
    want = f"keep the tiers of its minimum of 1 until this one has stayed for {TIER_SECONDS} s"
    assert want in found.of(WEB).statement.text
    found.now += TIER_SECONDS
    assert found.for_tiers(WEB) == 2
    assert "keep the tiers" not in found.of(WEB).statement.text


def test_pods_that_state_none_follow_an_autoscaler_and_the_smaller_of_two_statements_counts():
    found = filled("a", "b", "c")
    assert found.of(WEB) is None
    found.set_scaler("team-a/web", WEB, 2)
    assert found.of(WEB) == Replicas(2, 3, 3, is_scaled=True)
    found.set_pod("c", Replica(WEB, 1), is_ready=True)
    found.set_pod("b", Replica(WEB, 5), is_ready=True)
    assert found.of(WEB) == Replicas(1, 3, 3)


def test_an_autoscaler_that_turns_to_another_workload_leaves_the_first():
    found = filled("a", "b")
    turned = []
    found.on_scaled = lambda workload: turned.append((workload, found.is_scaled(workload)))
    assert [found.set_scaler("team-a/web", WEB, minimum) for minimum in (1, 1, 2)] == [True, False, True]
    assert found.set_scaler("team-a/web", CHAT, 1)
    assert (found.of(WEB), found.is_scaled(WEB), found.is_scaled(CHAT)) == (None, False, True)
    assert [found.remove_scaler("team-a/web") for _ in range(2)] == [True, False]
    assert turned == [(WEB, True), (WEB, False), (CHAT, True), (CHAT, False)]


class TestForTiers:
    def test_the_first_minimum_counts_at_once_and_another_one_after_a_while(self):
        found = filled("a", "b", "c")
        found.set_scaler("team-a/web", WEB, 1)
        assert found.for_tiers(WEB) == 1
        found.set_scaler("team-a/web", WEB, 2)
        assert (found.of(WEB).minimum, found.for_tiers(WEB)) == (2, 1)
        found.now += TIER_SECONDS - 1
        assert found.for_tiers(WEB) == 1
        found.now += 1
        assert found.for_tiers(WEB) == 2

    def test_one_that_changes_all_the_time_never_does(self):
        found = filled("a", "b", "c")
        for number in range(20):
            found.set_scaler("team-a/web", WEB, 1 + number % 2)
            found.now += TIER_SECONDS - 1
            assert found.for_tiers(WEB) == 1

    def test_neither_does_one_of_an_autoscaler_that_is_created_again_and_again(self):
        found = filled("a", "b", "c")
        for number in range(20):
            found.set_scaler("team-a/web", WEB, 1 + number % 2)
            assert found.for_tiers(WEB) == 1
            found.remove_scaler("team-a/web")
            assert found.for_tiers(WEB) == 0
            found.now += 1

    def test_nor_one_that_counts_only_while_there_is_one_more_pod(self):
        found = filled("a", "b", minimum=1)
        assert found.for_tiers(WEB) == 1
        for _ in range(20):
            found.remove_pod("b")
            assert found.for_tiers(WEB) == 1
            found.now += TIER_SECONDS - 1
            found.set_pod("b", Replica(WEB, 1), is_ready=True)
            assert found.for_tiers(WEB) == 1
        found.remove_pod("b")
        assert found.for_tiers(WEB) == 1
        found.now += TIER_SECONDS
        assert found.for_tiers(WEB) == 0


def test_few_of_many_autoscalers_of_one_workload_are_kept():
    found = filled("a")
    for number in range(1000):
        found.set_scaler(f"team-a/{number}", WEB, 5)
    found.set_scaler("team-a/0", WEB, 3)
    assert found.of(WEB).minimum == 3
    assert sum(found.remove_scaler(f"team-a/{number}") for number in range(1000)) == MOST_SCALERS


def test_each_state_says_what_it_means():
    texts = [Replicas(*each).statement.text for each in ((2, 2, 2), (2, 5, 4), (2, 5, 2))]
    assert texts == [
        "its workload has no more pods than its minimum of 2, which therefore has no effect",
        "replicas ready: 4, minimum: 2; 2 may be evicted first",
        "its workload has no more than its minimum of 2 ready: it is evicted after other pods",
    ]
    texts = [Replicas(*each, is_gang=True).statement.text for each in ((2, 2, 2), (2, 5, 4), (WHOLE, 5, 5))]
    assert texts == [
        "its gang has no more pods than its minimum of 2: it is evicted as a whole",
        "replicas ready: 4, minimum: 2; 2 may be evicted first",
        "its gang is evicted as a whole, by its disruption mode",
    ]


def test_a_copy_knows_what_is_a_gang():
    found, copy = filled("a", "b"), filled("a", "b")
    found.set_scaler("g", WEB, 1, is_gang=True)
    copy.copy_scalers(found)
    assert copy.of(WEB) == Replicas(1, 2, 2, is_scaled=True, is_gang=True)


def test_a_world_counts_pods_that_exist_and_those_in_line():
    there = make.world(make.policy(), [make.node()], [])
    for number, more in enumerate(({"is_ready": True}, {"is_ready": True, "is_terminating": True}, {})):
        there.set_pod(make.resident(uid=f"u{number}", node="n0", replica=Replica(WEB, 1), **more))
    assert there.minimums.of(WEB) == Replicas(1, 3, 1)
    there.remove_pod("u0")
    assert there.minimums.of(WEB) == Replicas(1, 2, 0)


steps = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.sampled_from([None, NO_REPLICA, *(Replica(name, least) for name in (WEB, CHAT) for least in (None, 1, 3))]),
        st.booleans(),
    )
)


@given(steps, st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from([None, WEB, CHAT]), st.integers(0, 3))))
def test_counts_equal_a_recount_after_any_events(pods, scalers):
    found, there, scaled = Minimums(), {}, {}
    for uid, replica, is_ready in pods:
        if replica is None:
            found.remove_pod(uid)
            there.pop(uid, None)
        else:
            found.set_pod(uid, replica, is_ready=is_ready)
            there[uid] = (replica, is_ready)
    for handle, workload, minimum in scalers:
        if workload is None:
            found.remove_scaler(handle)
            scaled.pop(handle, None)
        else:
            found.set_scaler(handle, workload, minimum)
            scaled[handle] = (workload, minimum)
    for workload in (WEB, CHAT):
        mine = [each for each in there.values() if each[0].workload == workload]
        stated = [replica.minimum for replica, _ in mine if replica.minimum is not None]
        least = stated or [minimum for name, minimum in scaled.values() if name == workload]
        ready = sum(is_ready for _, is_ready in mine)
        want = Replicas(min(least), len(mine), ready, is_scaled=not stated) if mine and least else None
        counted = found.of(workload)
        assert (counted and counted._replace(for_tiers=None)) == want, "what tiers follow depends on what was before"
        assert (workload in found.workloads()) is (want is not None)
