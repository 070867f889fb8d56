"""Important entries get their team's share, though others of the team would always fit into what is left of it."""

import pytest

from tests.core.queue.test_queue_pass import Judging
from tests.core.support.queue_sim import Cluster, Running, Table, entry
from webhook.core.line.entries import HoldBacks, NoRoom, OverLimit
from webhook.core.line.line_pass import QueuePass
from webhook.core.line.order import NO_GUARANTEE, DepartmentStanding, ModelShare, Order, ShareClaims, Skipped, Standing
from webhook.core.line.pod_queue import PodQueue
from webhook.core.model.amounts import UNLIMITED
from webhook.core.model.constraints import Tier
from webhook.core.model.policy import QueueRules

TEAM = ("team", "a")


def steady(cluster, *, gpus=8, priority=9, until=200, user=None):
    """Run small pods that last four seconds, two more each second, beside one of all GPUs; return when that starts."""
    for now in range(until):
        if now == 5:
            cluster.queue.add(entry("large", gpus=gpus, created=now, priority=priority, user=user))
        for number in range(2):
            small = entry(f"small-{now}-{number}", created=now)
            cluster.run_times[small.key] = 4
            cluster.queue.add(small)
        cluster.step()
    return cluster.started("uid-large")


def late_small_ones(cluster):
    return sum(each.gpus == 1 and at > 100 for at, each, _ in cluster.log)


def of_one_team(limit=8, nodes=None, **rules):
    limits = {} if limit is None else {TEAM: limit}
    teams = {"a": Standing("a", guaranteed=8)}
    return Cluster(nodes or {"n": 8}, teams, limits, rules=QueueRules(**rules))


def test_an_entry_of_the_whole_share_starts_once_it_waited_long():
    assert steady(of_one_team(strict_after_seconds=20)) in range(26, 32)


def test_without_an_end_of_patience_smaller_ones_pass_it_forever():
    assert steady(of_one_team(strict_after_seconds=UNLIMITED)) is None


@pytest.mark.parametrize("priority", [0, -1])
def test_entries_of_no_lower_priority_keep_their_place(priority):
    cluster = of_one_team(strict_after_seconds=20)
    assert steady(cluster, priority=priority) is None


def test_it_waits_for_nodes_in_the_same_way():
    assert steady(of_one_team(limit=None, strict_after_seconds=20)) in range(26, 32)


def test_one_that_has_held_others_back_for_too_long_keeps_no_share_from_them():
    """No node ever has room for it."""
    entries = [entry("large", gpus=8, created=0, priority=9), entry("small", created=1)]
    order, hold_backs = Order(PodQueue(entries), Table({"a": Standing("a", guaranteed=8, used=1)})), HoldBacks()
    rules = QueueRules(strict_after_seconds=20, hold_back_seconds=40)

    def is_kept(now):
        order.look()
        hold_backs.begin()
        assert QueuePass(order, rules, now=now, hold_backs=hold_backs).next(lambda *_, **__: NoRoom()) is None
        return "uid-large" in order.claims.of("a")

    assert [is_kept(now) for now in (10, 30, 49, 69)] == [False, True, True, True]
    assert [is_kept(now) for now in (70, 71, 100)] == [False] * 3, "it was ahead of others from 30 on"


def test_what_is_larger_than_the_share_takes_none_of_it():
    cluster = of_one_team(limit=12, nodes={"n": 12}, strict_after_seconds=20)
    assert steady(cluster, gpus=12) is None
    assert late_small_ones(cluster) > 150


def test_a_limit_of_the_user_alone_keeps_no_share_from_others():
    user = ("user", "a", "ada")
    cluster = Cluster(
        {"n": 8}, {"a": Standing("a", guaranteed=8)}, {user: 2}, rules=QueueRules(strict_after_seconds=20)
    )
    steady(cluster, user="ada")
    assert late_small_ones(cluster) > 150


def test_another_teams_share_is_not_kept():
    cluster = Cluster(
        {"n": 16},
        {"a": Standing("a", guaranteed=8), "b": Standing("b", guaranteed=8)},
        {TEAM: 8},
        rules=QueueRules(strict_after_seconds=0),
    )
    cluster.running.append(Running(entry("long"), "n", Tier.GUARANTEED, 0, 10**9))
    cluster.queue.add(entry("large", gpus=8, priority=9))
    cluster.release_all()
    for number in range(8):
        cluster.queue.add(entry(f"b{number}", "b"))
        cluster.queue.add(entry(f"a{number}", "a"))
    cluster.release_all()
    assert {each.team for _, each, _ in cluster.log} == {"b"}
    assert len(cluster.log) == 8


def test_a_claim_counts_though_no_pass_comes_to_it():
    """Another team always has something that starts, and a pass ends after it."""
    entries = [entry("large", gpus=8, created=0, priority=9), entry("small", created=1)]
    entries += [entry(f"b{number}", "b") for number in range(9)]
    teams = {"a": Standing("a", guaranteed=8, used=1), "b": Standing("b", guaranteed=100)}
    queue = PodQueue(entries)
    order, rules, judged = Order(queue, Table(teams)), QueueRules(strict_after_seconds=20), {}

    def classes(now):
        order.look()
        judge = Judging(**{key.removeprefix("uid-"): verdict for key, verdict in judged.items()})
        while (found := QueuePass(order, rules, now=now).next(judge)) is not None and found.entry.team == "a":
            queue.remove(found.entry.key)
        return [turn.rank[0] for turn in order.walk(Skipped()) if turn.team.team == "a"]

    assert classes(19) == [0, NO_GUARANTEE]
    assert classes(20) == [NO_GUARANTEE, NO_GUARANTEE]
    for name in [each.key for each in queue.entries() if each.team == "b"]:
        queue.remove(name)
    judged["uid-large"] = OverLimit(("user", "a", "ada"))
    assert classes(21) == [NO_GUARANTEE], "the small one has started"
    queue.add(entry("late", created=2))
    order.look()
    pass_ = QueuePass(order, rules, now=22)
    assert pass_.next(lambda *_, **__: None) is None
    assert order.claims.of("a") == set(), "a limit of its user alone: denied"


def test_claims_end_with_their_entries():
    claims, queue = ShareClaims(), PodQueue([entry("x"), entry("y")])
    for name in "xy":
        claims.note(entry(name), is_claim=True)
    assert claims.of("a") == {"uid-x", "uid-y"}
    claims.note(entry("x"), is_claim=False)
    assert claims.of("a") == {"uid-y"}
    queue.remove("uid-y")
    claims.keep(queue, "a")
    assert claims.of("a") == set()
    claims.note(entry("x"), is_claim=True)
    claims.keep_teams({"b": 1})
    assert claims.of("a") == set()


def test_what_an_empty_share_could_have():
    standing = Standing(
        "a",
        guaranteed=8,
        used=8,
        models={"h100": ModelShare(4, 4)},
        departments=(DepartmentStanding(guaranteed=8),),
    )
    lot = entry("x", gpus=8).lot
    assert standing.could_have_share_for(lot)
    assert not standing.could_have_share_for(lot._replace(gpus=9))
    assert not standing.could_have_share_for(lot._replace(model="h100"))
    assert standing.could_have_share_for(lot._replace(model="h100", gpus=4))
    assert not standing.could_have_share_for(lot._replace(requested_tier=Tier.PREEMPTIBLE))
