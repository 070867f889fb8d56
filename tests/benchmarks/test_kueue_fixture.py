"""Kueue's performance test on Fairgate: the loads have the published sizes, and a team has what a queue has."""

import pytest

from benchmarks.kueue_fixture import CONFIGS, blocked, policy_of, teams_of, waits_of
from webhook.core.model.amounts import format_gpus
from webhook.policy.watch import parse

METRICS = """\
# TYPE fairgate_event_loop_held_seconds histogram
fairgate_event_loop_held_seconds_bucket{by="ledger",le="0.1"} 2.0
fairgate_event_loop_held_seconds_count{by="ledger"} 2.0
fairgate_event_loop_held_seconds_sum{by="ledger"} 0.15
fairgate_event_loop_held_seconds_count{by="stall"} 1.0
fairgate_event_loop_held_seconds_sum{by="stall"} 0.5
"""


@pytest.mark.parametrize(("name", "queues", "pods"), [("baseline", 30, 15_000), ("large-scale", 1_000, 50_000)])
def test_a_load_has_the_published_size(name, queues, pods):
    config = CONFIGS[name]
    assert (len(teams_of(config)), config.pods) == (queues, pods)


def test_a_team_has_the_quota_of_its_queue_and_its_department_that_of_the_cohort():
    config = CONFIGS["baseline"]
    policy = parse({"policy.yaml": policy_of(teams_of(config), config).encode()}, origin="the benchmark")
    team = next(each for each in policy.teams if each.name == "queue-4-5")
    [department] = team.departments
    assert (department.name, format_gpus(department.gpus.guaranteed)) == ("cohort-4", "120")
    assert format_gpus(team.gpus.guaranteed) == "20"


def test_turns_of_the_event_loop_are_listed_by_what_ran():
    assert blocked(METRICS) == "ledger 2 times, 0.1 s; stall 1 times, 0.5 s"
    assert blocked("") == "never"


def test_a_pod_waits_from_its_creation_until_it_is_bound():
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}
    pod = {"metadata": {"creationTimestamp": "2026-01-01T00:00:05Z"}, "status": {"conditions": [bound]}}
    assert waits_of([pod | {"spec": {"priorityClassName": "large"}}]) == {"large": [55]}
