"""The order between teams, and what it does not depend on."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.queue_sim import Cluster, Table, entry
from tests.examples import examples
from webhook.core.line.line_pass import QueuePass
from webhook.core.line.order import DepartmentStanding, Order, Skipped, Standing
from webhook.core.line.pod_queue import PodQueue


def a_walk(order, skipped=None):
    order.look()
    return order.walk(skipped or Skipped())


def order(*entries, skipped=None, **standings):
    table = Table({name: Standing(name, **numbers) for name, numbers in standings.items()})
    walk = a_walk(Order(PodQueue(entries), table), skipped)
    return [turn.head.entry.pods[0].name for turn in walk]


def test_a_team_inside_its_share_goes_before_one_that_borrows():
    x, y = entry("x", "a", created=1), entry("y", "b", created=2)
    assert order(x, y, a={}, b={"guaranteed": 4, "used": 2, "borrowed": 9}) == ["y", "x"]


def test_equal_teams_go_by_age():
    assert order(entry("x", "a", created=2), entry("y", "b", created=1)) == ["y", "x"]


def test_a_small_pod_inside_the_share_goes_before_a_large_one_of_its_team_that_would_borrow():
    big, small, other = entry("big", gpus=8, created=1), entry("small", created=2), entry("other", "b", created=0)
    assert order(big, small, other, a={"guaranteed": 4, "borrowed": 9}, b={}) == ["small", "other", "big"]


def test_teams_and_lots_that_are_skipped_cost_nothing():
    pods = [entry("x", "a"), entry("y", "b"), entry("z", "c")]
    assert order(*pods, skipped=Skipped(teams={"b"})) == ["x", "z"]
    assert order(*pods, skipped=Skipped(lots={1})) == []


pods = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.integers(1, 4), st.integers(0, 3), st.sampled_from(["ada", "bob", None]),
        st.integers(0, 1),
    ),
    max_size=20,
)  # fmt: skip
numbers = st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 9), st.integers(1, 3))


def releases(entries, standings, *, free, passing=None):
    """Return what a cluster of so many GPUs starts, in order."""
    cluster = Cluster({"n1": free, "n2": free // 2}, standings)
    for each in entries:
        cluster.queue.add(each)
    if passing is not None:
        cluster.queue.add(passing)
        cluster.queue.remove(passing.key)
    cluster.release_all()
    return [(each.key, way) for _, each, way in cluster.log]


@given(pods, st.tuples(numbers, numbers, numbers), st.integers(0, 12), st.randoms(use_true_random=False))
@examples(60)
def test_what_starts_does_not_depend_on_the_order_of_events(drawn, shares, free, random):
    entries = [
        entry(f"x{number}", team, gpus, created=created, user=user, priority=priority)
        for number, (team, gpus, created, user, priority) in enumerate(drawn)
    ]
    standings = {
        team: Standing(team, guaranteed, min(used, guaranteed), borrowed, weight)
        for team, (guaranteed, used, borrowed, weight) in zip("abc", shares, strict=True)
    }
    want = releases(entries, standings, free=free)
    shuffled = random.sample(entries, len(entries))
    assert releases(shuffled, standings, free=free) == want
    gone = entry("gone", "a", 1, created=-1, priority=9)
    assert releases(shuffled, standings, free=free, passing=gone) == want


@given(pods, st.tuples(*[st.integers(1, 3)] * 3), st.integers(0, 16))
@examples(100)
def test_no_team_waits_while_one_that_borrows_more_gets_new_gpus(drawn, weights, free):
    standings = {team: Standing(team, weight=weight) for team, weight in zip("abc", weights, strict=True)}
    cluster = Cluster({"n": free}, standings)
    for number, (team, _, created, user, _) in enumerate(drawn):
        cluster.queue.add(entry(f"x{number}", team, created=created, user=user))
    a_pass = QueuePass(Order(cluster.queue, cluster), cluster.rules, now=0)
    while (release := a_pass.next(cluster)) is not None:
        waiting = {each.team for each in cluster.queue.entries()}
        part = {team: cluster.of(team).borrowed / cluster.of(team).weight for team in waiting}
        assert part[release.entry.team] == min(part.values())
        cluster.queue.remove(release.entry.key)
        cluster.start(release)
    assert len(cluster.log) == min(free, len(drawn))


def table_of(shares, used, borrowed):
    """Standings in which teams a and b are below one department, and c below another one, of what was started."""
    department_of = {"a": "x", "b": "x", "c": "y"}

    def level(name):
        below = [team for team, department in department_of.items() if department == name]
        sums = (sum(counts[team] for team in below) for counts in (used, borrowed))
        return DepartmentStanding(10, *sums, name=name)

    return Table(
        {
            team: Standing(team, guaranteed, used[team], borrowed[team], departments=(level(department_of[team]),))
            for team, guaranteed in zip("abc", shares, strict=True)
        }
    )


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.integers(0, 19), st.booleans()),
        st.tuples(st.just("use"), st.sampled_from("abc"), st.integers(1, 9)),
        st.tuples(st.just("add"), st.sampled_from("abc"), st.integers(1, 4)),
        st.tuples(st.just("remove"), st.integers(0, 19), st.none()),
        st.tuples(st.just("claim"), st.integers(0, 19), st.booleans()),
    ),
    max_size=12,
)


class Changing:
    """A queue and its order as things happen; `fresh` is a new order of the same state."""

    def __init__(self, drawn, shares):
        self.shares, self.used, self.borrowed = shares, Counter(), Counter()
        self.queue = PodQueue()
        for number, (team, gpus, created, user, priority) in enumerate(drawn):
            self.queue.add(entry(f"x{number}", team, gpus, created=created, user=user, priority=priority))
        self.table = table_of(shares, self.used, self.borrowed)
        self.kept = Order(self.queue, self.table)
        self.kept.look()

    def start(self, place, is_borrowing):
        if turns := list(self.kept.walk(Skipped())):
            started = turns[place % len(turns)].head.entry
            self.kept.note_start(started.team)
            (self.borrowed if is_borrowing else self.used)[started.team] += started.gpus
            self.queue.remove(started.key)

    def use(self, team, gpus):
        self.used[team] = gpus

    def add(self, team, gpus):
        self.queue.add(entry(f"y{len(self.queue)}-{gpus}", team, gpus, created=9))

    def some(self, place):
        entries = sorted(self.queue.entries(), key=lambda each: each.key)
        return entries[place % len(entries)] if entries else None

    def remove(self, place, _):
        if (gone := self.some(place)) is not None:
            self.queue.remove(gone.key)

    def claim(self, place, is_claim):
        if (claimed := self.some(place)) is not None:
            self.kept.note_claim(claimed, is_claim=is_claim)

    def fresh(self):
        order = Order(self.queue, self.table)
        for claimed in list(self.queue.entries()):
            order.note_claim(claimed, is_claim=claimed.key in self.kept.claims.of(claimed.team))
        order.look()
        return order


@given(pods, st.tuples(*[st.integers(0, 8)] * 3), EVENTS)
@examples(300)
def test_whatever_happens_the_order_is_that_of_a_new_one(drawn, shares, events):
    there = Changing(drawn, shares)

    def walked(order):
        return [(turn.rank, turn.age, turn.head.entry.key) for turn in order.walk(Skipped())]

    for what, which, how in events:
        getattr(there, what)(which, how)
        there.table.standings = table_of(shares, there.used, there.borrowed).standings
        if what not in ("start", "claim"):  # both are noted; a pass begins with a look at all else
            assert there.kept.look()
        assert walked(there.kept) == walked(there.fresh())


def test_a_look_may_be_made_in_parts():
    queue = PodQueue([entry(f"x{number}", f"t{number}", created=number) for number in range(5)])
    kept = Order(queue, Table())
    assert [kept.look(most=2), kept.look(most=2), kept.look(most=2)] == [False, False, True]
    assert [turn.head.entry.team for turn in kept.walk(Skipped())] == [f"t{number}" for number in range(5)]
