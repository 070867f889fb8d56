"""The meter: GPU-seconds between the changes of a world, by team, user, model and interval."""

from dataclasses import replace

import pytest

from tests.addons.history.support import A100, T0, amounts
from tests.addons.idle.made import rules
from tests.core.support import make
from tests.core.support.waiting import waiting
from webhook.addons.history.meter import (
    INTERVAL_SECONDS,
    MAX_INTERVALS,
    MAX_TEXT,
    MAX_USERS,
    OTHERS,
    Meter,
    UsageKey,
    UsageKind,
    bounded,
)
from webhook.addons.history.recorder import use_of
from webhook.core.model.amounts import GangId, GpuModel, NodeName, TeamName, Uid, User
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.model.policy import Department

N0 = NodeName("n0")


@pytest.fixture
def world():
    return make.world(make.policy(), nodes=[make.node("n0", gpus=64, model=GpuModel(A100))])


@pytest.fixture
def meter():
    return Meter()


def rows_of(meter, world, *, start=None):
    return amounts(meter.rows(world.policy), start=start)


def put(world, meter, now, pod):
    world.set_pod(pod)
    meter.update([pod.uid], world, now)
    return pod


def test_a_pod_counts_from_its_first_moment_on_a_node_to_its_last(world, meter):
    pod = put(world, meter, T0 + 1.5, make.resident(4, node=N0, user=User("ada")))
    world.remove_pod(pod.uid)
    meter.update([pod.uid], world, T0 + 11.75)
    meter.advance(T0 + 100, is_observed=False)
    assert rows_of(meter, world)[("guaranteed", "team-a", "ada", A100)] == pytest.approx(4 * 10.25)


def test_a_pod_waits_until_it_is_on_a_node_and_borrows_by_its_tier(world, meter):
    pod = put(world, meter, T0, make.resident(2, tier="preemptible"))
    put(world, meter, T0 + 30, pod._replace(node=N0, version=2))
    put(world, meter, T0 + 50, pod._replace(node=N0, tier_label="guaranteed", version=3))
    meter.advance(T0 + 60, is_observed=False)
    found = rows_of(meter, world)
    assert found[("waiting", "team-a", "", "")] == 60
    assert found[("preemptible", "team-a", "", A100)] == 40
    assert found[("guaranteed", "team-a", "", A100)] == 20


def test_a_pod_in_line_waits_and_one_that_is_only_admitted_does_not(world, meter):
    world.set_waiting(waiting("in-line", 3))
    charge = Charge(TeamName("team-a"), Tier.GUARANTEED, make.gpus(8))
    world.assume(make.flight(make.pod(8, uid=Uid("admitted")), charge, N0))
    meter.update(["uid-in-line", "admitted"], world, T0)
    meter.advance(T0 + 10, is_observed=False)
    assert {kind: amount for (kind, *_), amount in rows_of(meter, world).items() if kind == "waiting"} == {
        "waiting": 30
    }


def test_jobs_that_start_are_counted_by_size_and_wait_and_reported(world, meter):
    reported = []
    meter.on_start = reported.append
    gang = [make.resident(4, uid=f"g{n}", created=T0, gang=GangId("g")) for n in range(2)]
    for pod in gang:
        put(world, meter, T0 + 1, pod)
    put(world, meter, T0 + 10, gang[0]._replace(node=N0, version=2))
    put(world, meter, T0 + 40, gang[1]._replace(node=N0, version=2))
    put(world, meter, T0 + 41, make.resident(1, uid="direct", created=T0 + 40, node=N0))
    meter.advance(T0 + 60, is_observed=False)
    found = {key: amount for key, amount in rows_of(meter, world).items() if key[0] == "started"}
    assert found == {("started", "", "", "5-8/60"): 1, ("started", "", "", "1/1"): 1}
    assert reported == [("5-8", 40), ("1", 1)]


def test_pods_that_ran_before_the_record_did_not_start_in_it(world, meter):
    world.set_pod(make.resident(1, uid="old", created=T0 - 500, node=N0))
    meter.update(["old"], world, T0, is_first=True)
    meter.advance(T0 + 60, is_observed=False)
    assert not [key for key in rows_of(meter, world) if key[0] == "started"]


def test_the_use_of_nodes_is_added_up_over_time(world, meter):
    put(world, meter, T0, make.resident(16, node=N0))
    for now in (T0, T0 + 10):
        meter.set_use(use_of(meter, world), now)
    put(world, meter, T0 + 10, make.resident(48, uid="rest", node=N0))
    meter.set_use(use_of(meter, world), T0 + 10)
    meter.advance(T0 + 30, is_observed=False)
    found = {kind: amount for (kind, *_), amount in rows_of(meter, world).items() if kind.startswith("use")}
    assert found == {"use_gpus": 64 * 30, "use_held": 16 * 10 + 64 * 20, "use_nodes": 30, "use_partly": 10}


def test_nodes_that_come_and_go_count_while_they_offer_gpus(world, meter):
    meter.set_use(use_of(meter, world), T0)
    world.set_node(make.node("new", gpus=0))  # it has started, its device plugin has not
    meter.set_use(use_of(meter, world), T0 + 10)
    world.set_node(make.node("new", gpus=8))
    meter.set_use(use_of(meter, world), T0 + 20)
    world.remove_node(NodeName("new"))
    meter.set_use(use_of(meter, world), T0 + 50)
    meter.advance(T0 + 60, is_observed=False)
    found = rows_of(meter, world)
    assert (found["use_gpus", "", "", ""], found["use_nodes", "", "", ""]) == (64 * 60 + 8 * 30, 60 + 30)


def test_amounts_are_split_where_an_interval_ends(world, meter):
    put(world, meter, T0 + INTERVAL_SECONDS - 10, make.resident(1, node=N0))
    meter.advance(T0 + 2 * INTERVAL_SECONDS + 5, is_observed=False)
    key = ("guaranteed", "team-a", "", A100)
    want = {0: 10, 1: INTERVAL_SECONDS, 2: 5}
    assert {n: rows_of(meter, world, start=T0 + n * INTERVAL_SECONDS)[key] for n in want} == want


def test_the_unused_share_and_what_guaranteed_pods_hold_are_the_share(world, meter):
    world.set_policy(make.policy(make.team("team-a", guaranteed=10, limit_=20)))
    meter.set_policy(world.policy, T0)
    put(world, meter, T0 + 10, make.resident(4, node=N0))
    put(world, meter, T0 + 10, make.resident(3, node=N0, tier="preemptible"))
    meter.advance(T0 + 100, is_observed=False)
    found = rows_of(meter, world)
    assert found[("unused", "team-a", "", "")] == 10 * 10 + 6 * 90
    assert found[("unused", "team-a", "", "")] + found[("guaranteed", "team-a", "", A100)] == 10 * 100


def test_a_changed_share_counts_from_then_on(world, meter):
    for seconds, share in ((0, 10), (50, 20)):
        world.set_policy(make.policy(make.team("team-a", guaranteed=share, limit_=20)))
        meter.set_policy(world.policy, T0 + seconds)
        meter.set_policy(world.policy, T0 + seconds + 10)
    meter.advance(T0 + 100, is_observed=False)
    assert rows_of(meter, world)["unused", "team-a", "", ""] == 10 * 50 + 20 * 50


def test_free_gpus_count_by_model_until_the_model_is_gone(world, meter):
    meter.set_free({A100: make.gpus(5)}, T0)
    meter.set_free({}, T0 + 10)
    meter.advance(T0 + 60, is_observed=False)
    assert rows_of(meter, world) == {("free", "", "", A100): 50}


def test_only_time_with_a_current_world_is_observed(world, meter):
    for seconds, is_observed in ((0, True), (10, True), (20, False), (30, False), (40, True), (45, True)):
        meter.advance(T0 + seconds, is_observed=is_observed)
    assert rows_of(meter, world) == {("observed", "", "", ""): 15}


def test_a_clock_that_goes_back_adds_nothing_and_takes_nothing(world, meter):
    put(world, meter, T0 + 100, make.resident(1, node=N0))
    meter.advance(T0 + 110, is_observed=False)
    meter.advance(T0 + 50, is_observed=False)
    meter.advance(T0 + 70, is_observed=False)
    assert rows_of(meter, world)[("guaranteed", "team-a", "", A100)] == 30


def test_what_comes_for_an_interval_that_was_dropped_counts_in_the_present_one(world, meter):
    meter.add(UsageKey(UsageKind.REFUSED, "team-a"), 1, T0)
    meter.drop_before(T0 + INTERVAL_SECONDS)
    meter.add(UsageKey(UsageKind.REFUSED, "team-a"), 1, T0)
    assert {row.start: row.amount for row in meter.rows(world.policy)} == {T0 + INTERVAL_SECONDS: 1}


def test_an_interval_continues_what_an_earlier_process_wrote_of_it(world, meter):
    put(world, meter, T0 + 40, make.resident(1, node=N0))
    earlier = Meter()
    put(world, earlier, T0, make.resident(1, node=N0, uid="same"))
    earlier.advance(T0 + 30, is_observed=False)
    meter.resume(earlier.rows(world.policy))
    meter.backfill(world, since=T0 + 30, until=T0 + 40)
    meter.advance(T0 + 50, is_observed=False)
    assert rows_of(meter, world)[("guaranteed", "team-a", "", A100)] == 30 + 10 + 10
    assert meter.totals[UsageKey(UsageKind.HELD_GUARANTEED, "team-a", "", A100)] == 10


def test_a_gap_is_filled_from_the_creation_of_a_pod_at_the_earliest(world, meter):
    put(world, meter, T0 + 40, make.resident(1, node=N0, created=T0 + 38))
    meter.backfill(world, since=T0, until=T0 + 40)
    assert rows_of(meter, world)[("guaranteed", "team-a", "", A100)] == 2


def test_a_gap_of_weeks_is_filled_by_a_day_at_most(world, meter):
    put(world, meter, T0, make.resident(1, node=N0))
    meter.backfill(world, since=T0 - 60 * 86_400, until=T0)
    assert sum(row.amount for row in meter.rows(world.policy)) == 86_400


def test_a_users_rows_are_bounded_whatever_names_a_tenant_makes_up(world, meter):
    for number in range(5 * MAX_USERS):
        put(world, meter, T0, make.resident(1, node=N0, user=User(f"user-{number}" + "x" * 10_000)))
    meter.advance(T0 + 10, is_observed=False)
    held = {key: amount for key, amount in rows_of(meter, world).items() if key[0] == "guaranteed"}
    assert len(held) == MAX_USERS + 1
    assert max(len(user) for _, _, user, _ in held) <= MAX_TEXT
    assert held[("guaranteed", "team-a", OTHERS, A100)] == 4 * MAX_USERS * 10
    assert len(meter.totals) < 10


def test_a_million_refusals_are_one_row(world, meter):
    for _ in range(10_000):  # a hundred of each
        meter.add(UsageKey(UsageKind.REFUSED, "team-a", "mallory"), 100, T0)
    assert rows_of(meter, world) == {("refused", "team-a", "mallory", ""): 1_000_000}


def test_rows_that_are_never_written_are_dropped_after_a_day_and_counted(world, meter):
    for number in range(MAX_INTERVALS + 3):
        meter.add(UsageKey(UsageKind.REFUSED, "team-a"), 1, T0 + number * INTERVAL_SECONDS)
    assert len(meter.rows(world.policy)) == MAX_INTERVALS
    assert meter.dropped == 3


def test_rows_have_the_path_of_the_teams_departments(world, meter):
    team = world.policy.teams[0]
    policy = replace(
        world.policy, teams=(replace(team, departments=(Department("nlp", parent="research"), Department("research"))),)
    )
    meter.add(UsageKey(UsageKind.REFUSED, team.name), 1, T0)
    assert [row.department for row in meter.rows(policy)] == ["research/nlp"]


def test_long_names_stay_different():
    one, other = bounded("x" * 1000 + "1"), bounded("x" * 1000 + "2")
    assert one != other
    assert len(one) == MAX_TEXT
    assert bounded("ada") == "ada"


def idle_world(**more):
    nodes = [make.node("n0", gpus=64, model=GpuModel(A100))]
    return make.world(make.policy(idle=rules(), **more), nodes=nodes)


def test_gpus_that_are_not_used_count_from_the_beginning_of_that(meter):
    world = idle_world()
    pod = put(world, meter, T0, make.resident(4, node=N0, user=User("ada"), created=T0 - 60))
    put(world, meter, T0 + 200, pod._replace(idle_since=int(T0) + 50, version=2))
    put(world, meter, T0 + 250, pod._replace(idle_since=0, version=3))
    meter.advance(T0 + 280, is_observed=False)
    found = rows_of(meter, world)
    assert found[("held_idle", "team-a", "ada", A100)] == pytest.approx(4 * 200)
    assert found[("guaranteed", "team-a", "ada", A100)] == pytest.approx(4 * 280)


@pytest.mark.parametrize(
    ("since", "is_first", "want"), [(-1000, False, 4 * 160), (50, True, 4 * 50)], ids=["before it came", "seen before"]
)
def test_a_pod_is_not_idle_before_it_came_and_no_time_counts_twice(meter, since, is_first, want):
    world = idle_world()
    pod = make.resident(4, node=N0, created=int(T0) - 60, idle_since=int(T0) + since)
    world.set_pod(pod)
    meter.update([pod.uid], world, T0 + (50 if is_first else 0), is_first=is_first)
    meter.advance(T0 + 100, is_observed=False)
    assert rows_of(meter, world)[("held_idle", "team-a", "", A100)] == pytest.approx(want)


def test_without_rules_a_mark_means_nothing(world, meter):
    put(world, meter, T0, make.resident(4, node=N0, idle_since=1))
    meter.advance(T0 + 100, is_observed=False)
    assert not [key for key in rows_of(meter, world) if key[0] == "held_idle"]
