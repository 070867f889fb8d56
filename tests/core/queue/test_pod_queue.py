"""The order inside a team, kept by events."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.queue_sim import entry
from tests.examples import examples
from tests.kept import kept
from webhook.core.line.pod_queue import PodQueue


def names(queue, held=None, team="a"):
    """Return the first entry of each row in the order of a team."""
    (found,) = [each for each in queue.teams().values() if each.team == team]
    holdings = held or {}
    return [head.entry.pods[0].name for lane in found.lanes(lambda user: holdings.get(user, 0)) for head in lane.heads]


def test_priority_first_then_who_holds_least_then_age():
    queue = PodQueue([
        entry("old", user="ada", created=1),
        entry("poor", user="bob", created=2),
        entry("older", user="cyd", created=0),
        entry("urgent", user="ada", created=9, priority=7),
    ])  # fmt: skip
    assert names(queue, {"ada": 5, "cyd": 5}) == ["urgent", "poor", "older", "old"]


def test_ties_of_age_end_at_the_name():
    queue = PodQueue([entry(name, kind=name) for name in ("c", "a", "b")])
    assert names(queue) == ["a", "b", "c"]


def test_pods_of_unknown_users_count_as_one_user():
    queue = PodQueue([entry("x", created=1), entry("y", user="ada", created=2)])
    assert names(queue, {None: 3}) == ["y", "x"]


def test_a_row_is_as_old_as_its_first_entry():
    queue = PodQueue([entry("x", created=1), entry("y", kind="other", created=2), entry("z", created=3)])
    assert names(queue) == ["x", "y"]
    queue.remove("uid-x")
    assert names(queue) == ["y", "z"]
    queue.add(entry("w", created=0))
    assert names(queue) == ["w", "y"]


def test_an_entry_with_the_same_key_replaces_the_first():
    queue = PodQueue([entry("x", gpus=1), entry("x", gpus=4)])
    assert (len(queue), queue.get("uid-x").gpus, names(queue)) == (1, 4, ["x"])


def test_what_is_not_there_is_not_removed():
    queue = PodQueue([entry("x")])
    assert queue.remove("uid-y") is None
    assert queue.remove("uid-x").key == "uid-x"
    assert (len(queue), list(queue.teams()), queue.get("uid-x")) == (0, [], None)


def test_a_team_knows_its_smallest_entry_and_what_limits_count_all_of_it():
    queue = PodQueue([entry("x", gpus=4, user="ada"), entry("y", gpus=2, user="bob")])
    (team,) = queue.teams().values()
    assert (team.smallest, team.is_covered_by(("team", "a")), team.is_covered_by(("user", "a", "ada"))) == (
        2,
        True,
        False,
    )
    queue.remove("uid-y")
    assert (team.smallest, team.is_covered_by(("user", "a", "ada"))) == (4, True)


def test_lots_are_forgotten_with_the_entries_that_had_them():
    queue = PodQueue([entry("stays")])
    size = kept(queue)
    for number in range(1000):
        queue.add(entry("x", kind=number))
    assert kept(queue) < size + 100


events = st.lists(st.tuples(st.booleans(), st.integers(0, 15)), max_size=60)


@given(events)
@examples()
def test_any_events_leave_the_order_that_a_new_queue_has(changes):
    def made(number):
        return entry(f"x{number}", "ab"[number % 2], 1 + number % 3, created=number % 5, user=f"u{number % 4}")

    queue, left = PodQueue(), {}
    for is_added, number in changes:
        if is_added:
            queue.add(made(number))
            left[number] = made(number)
        else:
            queue.remove(f"uid-x{number}")
            left.pop(number, None)
    fresh = PodQueue(left[number] for number in sorted(left))
    teams = sorted(team.team for team in fresh.teams().values())
    assert sorted(team.team for team in queue.teams().values()) == teams
    for team in teams:
        assert names(queue, team=team) == names(fresh, team=team)
