"""Verdicts over virtual time: who is idle, since when, and what a tenant cannot reset."""

import pytest

from tests.addons.idle.made import HOUR, MINUTE, candidate, rules, terms, used
from tests.kept import kept
from webhook.addons.idle.judge import PODS_LEFT, SAVING_SECONDS, WORKLOADS, IdleClock, Reading

START = 1_000_000 * MINUTE
RULES = rules()


class Course:
    """A clock and its time: one look a minute."""

    def __init__(self, of=RULES):
        self.clock, self.rules, self.now = IdleClock(), of, START

    def look(self, pods, found, *, minutes=1):
        for _ in range(minutes):
            self.now += MINUTE
            self.found = self.clock.look(pods, found, self.rules, now=self.now)
        return set(self.found.idle_since)


def test_a_pod_is_idle_after_the_time_of_policy_and_since_its_beginning():
    course = Course()
    pod = candidate()
    assert course.look([pod], used(), minutes=59) == set()
    assert course.look([pod], used()) == {"a"}
    assert course.found.idle_since["a"] == course.now - HOUR
    since = course.found.idle_since["a"]
    course.look([pod], used(), minutes=30)
    assert course.found.idle_since["a"] == since


@pytest.mark.parametrize(
    "found",
    [
        used(5.0),
        used(is_shared=True),
        used(devices=2),
        used(name="other"),
        {},
        None,
    ],
    ids=["it is used", "it shares a GPU", "another number of GPUs", "no series of it", "no series", "no reading"],
)
def test_what_is_never_idle(found):
    assert Course().look([candidate()], found, minutes=300) == set()


def test_one_used_gpu_of_several_is_use():
    values = used(devices=8)
    values["team-a", "a"].by_gpu["a-3",] = 80.0
    assert Course().look([candidate(devices=8)], values, minutes=300) == set()


def test_a_part_of_a_gpu_is_not_judged_by_a_metric_of_whole_gpus():
    course = Course()
    pod = candidate(has_parts=True)
    assert course.look([pod], used(of_parts={}), minutes=300) == set()
    assert course.look([pod], used(), minutes=60) == {"a"}


def test_a_pod_that_cannot_be_judged_has_no_reading():
    course = Course()
    assert course.look([candidate(cannot_judge="it shares a GPU")], used(), minutes=90) == set()
    assert course.found.readings == {}


def test_a_gang_is_idle_only_together():
    pods = [candidate("a", gang="g"), candidate("b", gang="g")]
    both = used() | used(name="b")
    assert Course().look(pods, both, minutes=60) == {"a", "b"}
    assert Course().look(pods, used() | used(90.0, name="b"), minutes=300) == set()
    assert Course().look(pods, used(), minutes=300) == set()  # nothing is known of b


@pytest.mark.parametrize(
    ("large", "small", "want"),
    [(0.0, 99.0, {"large", "small"}), (99.0, 0.0, set())],
    ids=["a small pod keeps no idle one", "a large one does"],
)
def test_most_gpus_of_a_gang_decide(large, small, want):
    pods = [candidate("large", devices=8, gang="g"), candidate("small", gang="g")]
    found = used(large, name="large", devices=8) | used(small, name="small")
    assert Course().look(pods, found, minutes=60) == want


def test_terms_are_those_of_the_team():
    course = Course()
    pods = [candidate("a"), candidate("b", of=terms(below=50, for_=HOUR // 2))]
    assert course.look(pods, used(20.0) | used(20.0, name="b"), minutes=31) == {"b"}


def test_a_start_is_not_idleness():
    course = Course(rules(startup=10 * MINUTE))
    pod = candidate(started_at=START)
    assert course.look([pod], used(), minutes=9 + 59) == set()
    assert course.look([pod], used(), minutes=2) == {"a"}


def test_pulling_an_image_is_not_idleness_for_as_long_as_the_bound():
    course = Course()
    assert course.look([candidate(is_starting=True)], used(), minutes=60) == set()
    assert course.found.readings["a"] is Reading.EXCUSED


def test_saving_is_not_idleness():
    course = Course()
    course.look([candidate()], used(), minutes=60)
    saving = candidate(saved_at=course.now)
    assert course.look([saving], used()) == {"a"}
    assert course.found.readings["a"] is Reading.EXCUSED
    course.now += SAVING_SECONDS
    course.look([saving], used())
    assert course.found.readings["a"] is Reading.LOW


def test_a_pod_that_says_without_end_that_it_saves_is_idle_in_the_end():
    course = Course()
    for _ in range(2 * 60 + 1):
        course.look([candidate(saved_at=course.now)], used())
    assert "a" in course.found.idle_since


def test_a_restart_does_not_reset_the_clock():
    course = Course()
    found = used() | used(name="b") | used(name="c")
    assert course.look([candidate("a", workload="w")], found, minutes=30) == set()
    assert course.look([candidate("b", workload="w")], found, minutes=20) == set()
    assert course.look([candidate("c", workload="w")], found, minutes=10) == {"c"}


def test_an_evicted_pod_takes_its_readings_along():
    course = Course()
    found = used() | used(name="b")
    pod = candidate("a", workload="w")
    assert course.look([pod], found, minutes=60) == {"a"}
    course.clock.evicted(pod)
    assert course.look([candidate("b", workload="w")], found, minutes=50) == set()


def test_a_new_leader_continues_what_is_published():
    pod = candidate(idle_since=START - HOUR)
    course = Course()
    assert course.look([pod], used()) == {"a"}
    assert course.found.idle_since["a"] == START - HOUR
    assert Course().look([pod], used(50.0)) == set()


def test_a_mark_on_a_pod_that_comes_later_is_not_believed():
    course = Course()
    course.look([], {})
    assert course.look([candidate(idle_since=START)], used()) == set()


def test_memory_of_ended_pods_is_bounded():
    course = Course(rules(for_=5 * MINUTE))
    for number in range(WORKLOADS + 10):
        course.look([candidate(f"p{number}", workload=f"w{number}")], used())
    full = kept(course.clock)
    for number in range(WORKLOADS, 2 * WORKLOADS):
        course.look([candidate(f"p{number}", workload=f"w{number}")], used())
    assert kept(course.clock) <= full + 50
    for number in range(2 * PODS_LEFT):
        course.look([candidate(f"q{number}", workload="one")], used())
    full = kept(course.clock)
    course.look([candidate(f"r{number}", workload="one") for number in range(100)], used())
    course.look([], used())
    assert kept(course.clock) <= full + 50
