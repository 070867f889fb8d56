"""What starts next, in its turn or as back-fill, and what never waits longer because of it."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.queue_sim import Cluster, Running, Table, entry, queued
from tests.examples import examples
from webhook.core.line.entries import Fits, Never, NoRoom, OverLimit, Way, entry_of
from webhook.core.line.line_pass import MAX_BLOCKED, QueuePass
from webhook.core.line.order import Order, Standing
from webhook.core.line.pod_queue import PodQueue
from webhook.core.model.amounts import UNLIMITED
from webhook.core.model.constraints import Tier
from webhook.core.model.policy import QueueRules


class Judging:
    """Judges by a table of names and records what it was asked."""

    def __init__(self, default=None, placeless=(), **verdicts):
        self.default = default or Fits()
        self.placeless = placeless
        self.verdicts = verdicts
        self.asked = []

    def __call__(self, entry, *, way, kept):
        self.asked.append((entry.pods[0].name, way, kept))
        return self.verdicts.get(entry.pods[0].name, self.default)

    def has_place(self, entry, limit, *, is_owed):
        self.asked.append((entry.pods[0].name, limit, is_owed))
        return entry.pods[0].name not in self.placeless


def released(judge, *entries, standings=None, now=0, rules=None):
    """Return the names and ways of all that one pass releases."""
    queue = PodQueue(entries)
    found, a_pass = [], QueuePass(Order(queue, standings or Table()), rules or QueueRules(), now=now)
    while (release := a_pass.next(judge)) is not None:
        found.append((release.entry.pods[0].name, release.way.value))
        queue.remove(release.entry.key)
    return found


def test_all_that_fits_starts_in_its_turn():
    assert released(Judging(), entry("x", created=2), entry("y", created=1)) == [("y", "inTurn"), ("x", "inTurn")]


def test_what_starts_behind_an_entry_without_room_is_backfill():
    judge = Judging(big=NoRoom())
    assert released(judge, entry("big", gpus=8), entry("small", created=1)) == [("small", "backfill")]


def test_backfill_leaves_the_nodes_alone_that_are_kept_for_the_head():
    judge = Judging(big=NoRoom(frozenset({"n1"})))
    released(judge, entry("big", gpus=8), entry("small", created=1))
    assert judge.asked == [("big", Way.IN_TURN, frozenset()), ("small", Way.BACKFILL, frozenset({"n1"}))]


def test_only_the_head_has_nodes_kept():
    judge = Judging(first=NoRoom(frozenset({"n1"})), second=NoRoom(frozenset({"n2"})))
    released(judge, entry("first", gpus=8), entry("second", gpus=4, created=1), entry("third", created=2))
    assert judge.asked[-1] == ("third", Way.BACKFILL, frozenset({"n1"}))


def test_an_entry_that_could_never_take_the_heads_room_starts_in_its_turn():
    a100, h100 = frozenset({"a100"}), frozenset({"h100"})
    big, other = entry("big", gpus=8, sites=h100), entry("other", created=1, sites=a100)
    both = entry("both", created=2, gpus=2, sites=a100 | h100)
    want = [("other", "inTurn"), ("both", "backfill")]
    assert released(Judging(big=NoRoom()), big, other, both) == want


def test_an_entry_for_any_node_competes_with_every_other():
    big, other = entry("big", gpus=8, sites=frozenset({"h100"})), entry("other", created=1)
    assert released(Judging(big=NoRoom()), big, other) == [("other", "backfill")]
    big, other = entry("big", gpus=8), entry("other", created=1, sites=frozenset({"h100"}))
    assert released(Judging(big=NoRoom()), big, other) == [("other", "backfill")]


def test_what_cannot_be_evicted_or_never_borrows_is_no_backfill():
    judge = Judging(big=NoRoom())
    shielded = entry("shielded", created=1, is_evictable=False)
    proud = entry("proud", created=2, requested_tier=Tier.GUARANTEED)
    assert released(judge, entry("big", gpus=8), shielded, proud) == []
    assert [name for name, _, _ in judge.asked] == ["big"]


def test_entries_of_one_lot_are_judged_once():
    judge = Judging(default=NoRoom())
    assert released(judge, *(entry(f"x{n}", f"t{n % 5}", created=n) for n in range(50))) == []
    assert len(judge.asked) == 1


def test_a_limit_of_one_team_holds_up_no_other():
    judge = Judging(full=OverLimit(("team", "a")))
    want = [("other", "inTurn")]
    assert released(judge, entry("full"), entry("other", "b", created=1), now=10_000) == want


def test_a_limit_that_had_no_room_is_not_asked_about_again_for_as_much():
    judge = Judging(first=OverLimit(("team", "a")))
    more = [entry(f"x{n}", gpus=2 + n, created=n + 1) for n in range(5)]
    assert released(judge, entry("first", gpus=2), *more) == []
    assert len(judge.asked) == 1


def test_smaller_pods_pass_one_that_waits_for_a_limit_until_it_has_waited_long():
    judge = Judging(big=OverLimit(("team", "a")))
    pods = [entry("big", gpus=8), entry("small", created=1)]
    assert released(judge, *pods, now=599) == [("small", "inTurn")]
    assert released(judge, *pods, now=600) == []
    assert released(judge, *pods, now=0, rules=QueueRules(strict_after_seconds=0)) == []
    never = QueueRules(strict_after_seconds=UNLIMITED)
    assert released(judge, *pods, now=10**9, rules=never) == [("small", "inTurn")]


def test_a_limit_of_a_user_closes_for_that_user_only():
    judge = Judging(big=OverLimit(("user", "a", "ada")))
    ada, bob = entry("small", user="ada", created=1), entry("other", user="bob", created=2)
    assert released(judge, entry("big", gpus=8, user="ada"), ada, bob, now=10_000) == [("other", "inTurn")]


def test_an_entry_that_can_never_start_delays_no_other_entry():
    judge = Judging(lost=Never())
    assert released(judge, entry("lost", gpus=8), entry("x", created=1), now=10_000) == [("x", "inTurn")]
    assert [name for name, _, _ in judge.asked].count("lost") == 1


def test_a_gang_is_released_whole():
    members = [queued(f"w{n}", gpus=4, gang="run", created=n) for n in range(3)]
    a_pass = QueuePass(Order(PodQueue([entry_of(members)]), Table()), QueueRules(), now=9)
    release = a_pass.next(Judging())
    assert release is not None
    assert ([pod.name for pod in release.entry.pods], release.entry.gpus) == (["w0", "w1", "w2"], 12)


def test_a_user_with_pods_of_all_sizes_costs_a_bounded_number_of_judgments_and_delays_no_one():
    judge = Judging(default=NoRoom(), fits=Fits())
    hostile = [entry(f"h{n}", user=f"u{n % 100}", kind=("odd", n), created=n, gpus=1 + n % 7) for n in range(1000)]
    other = entry("fits", user="honest", kind="small", created=2000)
    assert released(judge, *hostile, other) == [("fits", "backfill")]
    assert len(judge.asked) <= MAX_BLOCKED + 102


def shares(**teams):
    return {name: Standing(name, **numbers) for name, numbers in teams.items()}


@st.composite
def stuck_clusters(draw):
    """Nodes full enough that the head, which is inside its team's share, finds no room even by reclaim."""
    sizes = draw(st.lists(st.integers(2, 8), min_size=1, max_size=4))
    nodes = {f"n{number}": size for number, size in enumerate(sizes)}
    need = draw(st.integers(2, max(sizes)))
    residents = []
    for name, size in nodes.items():
        taken, most = 0, size - need
        while size - taken >= need or (taken < size and draw(st.booleans())):
            gpus = draw(st.integers(1, size - taken))
            residents.append((name, gpus, draw(st.integers(1, 30))))
            taken += gpus
        assert taken > most
    others = draw(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.integers(1, 40)), max_size=12))
    return nodes, need, residents, others, draw(st.integers(0, 3))


def simulated(drawn, *, is_inside, has_backfill, teams=None):
    nodes, need, residents, others, grace = drawn
    guaranteed = 100 if is_inside else 0
    standings = teams or shares(a={"guaranteed": guaranteed}, b={}, owner={"guaranteed": 1000})
    cluster = Cluster(nodes, standings, grace=grace, has_backfill=has_backfill)
    for number, (node, gpus, ends) in enumerate(residents):
        cluster.running.append(Running(entry(f"r{number}", "owner", gpus), node, Tier.GUARANTEED, 0, ends))
    cluster.queue.add(entry("head", "a", need))
    cluster.run_times["uid-head"] = 5
    for number, (team, gpus, seconds) in enumerate(others):
        cluster.queue.add(entry(f"o{number}", team, gpus, created=number + 1))
        cluster.run_times[f"uid-o{number}"] = seconds
    cluster.release_all()
    kept = cluster.kept
    while cluster.started("uid-head") is None and cluster.now < 200:
        cluster.step()
    return cluster, kept


@given(stuck_clusters())
@examples(150)
def test_the_head_starts_no_later_than_without_backfill_plus_grace(drawn):
    without, _ = simulated(drawn, is_inside=True, has_backfill=False)
    with_backfill, _ = simulated(drawn, is_inside=True, has_backfill=True)
    head = "uid-head"
    assert with_backfill.started(head) <= without.started(head) + drawn[4]


def test_backfill_uses_the_room_that_the_head_cannot_and_leaves_it_at_once():
    drawn = ({"n1": 8}, 8, [("n1", 5, 10)], [("b", 1, 99)] * 3, 2)
    cluster, _ = simulated(drawn, is_inside=True, has_backfill=True)
    assert [(at, each.pods[0].name, way.value) for at, each, way in cluster.log] == [
        (0, "o0", "backfill"), (0, "o1", "backfill"), (0, "o2", "backfill"), (12, "head", "inTurn")
    ]  # fmt: skip


@given(stuck_clusters())
@examples(150)
def test_a_head_that_only_borrows_starts_when_the_pods_on_its_kept_node_have_ended(drawn):
    of_one_team = (*drawn[:3], [("a", *rest) for _, *rest in drawn[3]], drawn[4])
    cluster, kept = simulated(of_one_team, is_inside=False, has_backfill=True)
    (node,) = kept
    assert cluster.started("uid-head") <= max(ends for where, _, ends in drawn[2] if where == node)


@given(stuck_clusters())
@examples(80)
def test_a_head_that_only_borrows_is_not_delayed_at_all_on_its_only_node(drawn):
    nodes, need, residents, others, _ = drawn
    only = {name: size for name, size in nodes.items() if name == "n0"}
    at = (only, min(need, only["n0"]), [each for each in residents if each[0] == "n0"], others, 0)
    of_one_team = (*at[:3], [("a", *rest) for _, *rest in at[3]], 0)
    without, _ = simulated(of_one_team, is_inside=False, has_backfill=False)
    with_backfill, _ = simulated(of_one_team, is_inside=False, has_backfill=True)
    assert with_backfill.started("uid-head") == without.started("uid-head")


def test_three_teams_share_by_their_weights():
    teams = shares(a={"weight": 1}, b={"weight": 1}, c={"weight": 2})
    cluster = Cluster({f"n{n}": 8 for n in range(5)}, teams)
    gpu_seconds = dict.fromkeys("abc", 0)
    for second in range(400):
        for team in "abc":
            waiting = sum(each.team == team for each in cluster.queue.entries())
            for number in range(waiting, 30):
                name = f"{team}-{second}-{number}"
                cluster.queue.add(entry(name, team, created=second))
                cluster.run_times[f"uid-{name}"] = 3 + hash((second, number)) % 9
        cluster.step()
        for each in cluster.running:
            gpu_seconds[each.entry.team] += 1
    total = sum(gpu_seconds.values())
    assert total > 0.99 * 40 * 400
    for team, part in (("a", 0.25), ("b", 0.25), ("c", 0.5)):
        assert abs(gpu_seconds[team] / total - part) < 0.05 * part


def test_a_user_does_not_starve_the_others_of_the_team():
    cluster = Cluster({"n": 4}, shares(a={}))
    for number in range(200):
        cluster.queue.add(entry(f"greedy-{number}", user="greedy", created=number))
        cluster.run_times[f"uid-greedy-{number}"] = 3
    cluster.release_all()
    for number in range(10):
        cluster.queue.add(entry(f"late-{number}", user="late", created=1000 + number))
        cluster.run_times[f"uid-late-{number}"] = 3
    for _ in range(16):
        cluster.step()
    started = [each.user for _, each, _ in cluster.log]
    assert started.count("late") == 10
    assert started.count("greedy") >= 12
