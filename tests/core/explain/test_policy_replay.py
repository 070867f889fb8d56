"""The outcome of running pods under another policy."""

from dataclasses import replace

import pytest

from tests.core.support.make import gpus, node, pod, policy, pool, resident, team, world
from tests.core.support.waiting import waiting
from webhook.core.explain.policy_replay import PolicyOutcome, Running, line_outcomes, policy_outcomes
from webhook.core.model.amounts import WorkloadName
from webhook.core.model.constraints import Tier
from webhook.core.model.pod import Replica
from webhook.core.model.policy import Defaults, OnLimit, OnNoRoom, UnknownTeam
from webhook.core.model.reasons import Code

G, P = Tier.GUARANTEED, Tier.PREEMPTIBLE


def running(count, name, *, tier="guaranteed", node="n0", namespace="team-a", created=0, **asked):
    made = resident(count, uid=name, name=name, tier=tier, node=node, namespace=namespace, created=created)
    return Running(made, pod(count, namespace=namespace, name=name, uid=name, **asked))


def outcomes(pods, rules, nodes=None):
    return policy_outcomes(pods, world(rules, nodes))


def test_pods_that_are_guaranteed_stay_so_while_there_is_a_share_for_them():
    pods = [running(4, "a", tier="preemptible", created=1), running(4, "b", created=3), running(4, "c", created=2)]
    found = outcomes(pods, policy(team(guaranteed=8)))
    assert {name: outcome.tier for name, outcome in found.items()} == {"a": P, "b": G, "c": G}
    found = outcomes(pods, policy(team(guaranteed=4)))
    assert {name: outcome.tier for name, outcome in found.items()} == {"a": P, "b": P, "c": G}


@pytest.mark.parametrize("is_scaled", [True, False], ids=["an autoscaler", "an annotation"])
def test_under_a_smaller_share_replicas_of_a_minimum_keep_it_and_those_beyond_one_lose_it_first(is_scaled):
    web = WorkloadName("team-a/Deployment/web")
    replica = Replica(web, None if is_scaled else 1)
    pods = [running(1, f"w{n}", created=10 + n) for n in range(3)]
    pods = [replace(each, resident=each.resident._replace(replica=replica)) for each in pods]
    pods += [running(1, f"o{n}", created=n) for n in range(2)]
    for share, want in ((5, "w0 w1 w2 o0 o1"), (3, "w0 o0 o1"), (2, "w0 o0"), (1, "w0")):
        there = world(policy(team(guaranteed=share)))
        if is_scaled:
            there.minimums.set_scaler("team-a/web", web, 1)
        found = policy_outcomes(pods, there)
        assert {name for name, outcome in found.items() if outcome.tier is G} == set(want.split())


def test_pods_beyond_the_limit_are_refused_and_take_nothing_from_smaller_ones():
    found = outcomes(
        [running(8, "a", created=1), running(6, "b", created=2), running(2, "c", created=3)], policy(team(limit_=10))
    )
    assert [reason.code for reason in found["b"].refusals] == [Code.TEAM_LIMIT_EXCEEDED]
    assert (found["a"].refusals, found["c"].refusals) == ((), ())


def test_the_pool_is_that_of_the_node():
    nodes = [node("n0", labels={"at": "x"}), node("n1")]
    pools = (pool("x", node_selector=(("at", "x"),)), pool("y", node_selector=(("at", "y"),)))
    found = outcomes(
        [running(1, "a"), running(1, "b", node="n1"), running(1, "w", node=None)], policy(pools=pools), nodes
    )
    assert found["a"] == PolicyOutcome("team-a", G, "x")
    assert [reason.code for reason in found["b"].refusals] == [Code.NO_POOL_ALLOWED]
    assert found["w"] == PolicyOutcome("team-a", G, None)


def test_a_share_of_the_model_counts_where_the_pod_is():
    shares = {"A100": team(guaranteed=1, limit_=2).gpus}
    nodes = [node("n0", model="A100", model_label="m")]
    found = outcomes([running(1, "a"), running(1, "b"), running(1, "c")], policy(team(models=shares)), nodes)
    assert [found[name].tier for name in "abc"] == [G, P, None]
    assert [reason.code for reason in found["c"].refusals] == [Code.MODEL_LIMIT_EXCEEDED]


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param({"tier_label": "preemptible"}, PolicyOutcome("team-a", P, ""), id="preemptible by choice"),
        pytest.param({"tier_label": "guaranteed"}, Code.GUARANTEED_SHARE_USED, id="never borrows"),
        pytest.param({"pool": "gone"}, Code.UNKNOWN_POOL, id="pinned to a pool that is gone"),
    ],
)
def test_the_requested_tier_is_kept(asked, want):
    outcome = outcomes([running(4, "a", **asked)], policy(team(guaranteed=2)))["a"]
    assert (outcome.refusals[0].code if outcome.refusals else outcome) == want


def test_a_namespace_without_a_team():
    pods = [running(1, "a", namespace="stray")]
    assert outcomes(pods, policy())["a"].refusals[0].code is Code.UNKNOWN_TEAM
    lenient = policy(defaults=Defaults(unknown_team=UnknownTeam.PREEMPTIBLE))
    assert outcomes(pods, lenient)["a"] == PolicyOutcome("unassigned", P, "")


def test_exempt_pods_are_only_counted():
    outcome = outcomes([running(1, "a")], replace(policy(), exempt_namespaces=("team-a",)))["a"]
    assert (outcome.team, outcome.tier, outcome.counted.text) == (
        "team-a",
        None,
        "namespace team-a is exempt: only counted",
    )
    operators = outcomes([running(1, "a", namespace="gpu-operator")], policy())["a"]
    assert operators.counted.text.startswith("namespace gpu-operator is exempt by default, as a device operator's")


def test_limits_per_user_hold_for_bare_pods():
    made = [running(2, "a"), running(2, "b")]
    made = [replace(each, resident=each.resident._replace(user="alice")) for each in made]
    found = outcomes(made, policy(team(per_user=gpus(3))))
    assert [bool(found[name].refusals) for name in "ab"] == [False, True]


QUEUES = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE}


def test_pods_beyond_the_limit_wait_where_policy_says_so_and_those_that_could_never_start_are_refused():
    found = outcomes(
        [running(2, "a"), running(1, "b"), running(3, "c")], policy(team(guaranteed=2, limit_=2, **QUEUES))
    )
    assert (found["a"].tier, found["b"].tier, found["b"].refusals) == (G, None, ())
    assert found["b"].queued.code is Code.WAITS_FOR_LIMIT
    assert (found["c"].queued, [reason.code for reason in found["c"].refusals]) == (None, [Code.TEAM_LIMIT_EXCEEDED])


def in_line(*pods, is_room_known=True):
    place = world(policy(team(guaranteed=4, limit_=4, **QUEUES)), [node("n0", gpus=8)])
    for each in pods:
        place.set_waiting(each)
    return line_outcomes(place, is_room_known=is_room_known)


def test_of_the_line_those_start_that_the_leader_would_release_and_the_others_say_why_not():
    pods = [waiting("first", 3, created=1), waiting("second", 1, created=2), waiting("third", 1, created=3)]
    found = in_line(*pods)
    assert [found[f"uid-{name}"].tier for name in ("first", "second", "third")] == [G, G, None]
    assert found["uid-third"].queued.code is Code.WAITS_FOR_LIMIT
    assert {each.queued.code for each in in_line(*pods, is_room_known=False).values()} == {Code.WAITS_IN_LINE}


def test_a_pod_in_line_that_a_policy_never_starts_is_refused():
    found = in_line(waiting("large", 5), waiting("stray", namespace="nowhere"))
    assert [reason.code for reason in found["uid-large"].refusals] == [Code.TEAM_LIMIT_EXCEEDED]
    assert [reason.code for reason in found["uid-stray"].refusals] == [Code.UNKNOWN_TEAM]
