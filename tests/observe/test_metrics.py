import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.core.support.departments import department
from tests.core.support.make import gpus, node, pod, policy, resident, team, world
from tests.core.support.waiting import waiting
from webhook.core.line.entries import Way
from webhook.core.model.amounts import ONE_GPU, TeamName
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.model.pod import Handling, NamespaceFacts
from webhook.core.quota.charges import flight_of
from webhook.core.world.listed_charges import assume_charges
from webhook.observe.evictor import ReclaimMetrics
from webhook.observe.logs import Phase
from webhook.observe.metrics import Metrics
from webhook.observe.processes import LeaderStatus, LedgerState

VISION = TeamName("vision")


def samples(metrics):
    text = metrics.expose().body.decode()
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_decisions_are_counted_by_phase_outcome_code_and_team():
    metrics = Metrics()
    for _ in range(3):
        metrics.decision(Phase.VALIDATE, outcome="deny", code="TeamLimitExceeded", team=VISION, seconds=0.0002)
    key = 'fairgate_decisions_total{code="TeamLimitExceeded",outcome="deny",phase="validate",team="vision"}'
    assert samples(metrics)[key] == "3.0"


def test_text_that_is_not_a_code_never_becomes_a_label():
    metrics = Metrics()
    for number in range(100):
        metrics.decision(Phase.MUTATE, outcome="deny", code=f"pod-{number}", team="", seconds=0.0)
    counted = {k: v for k, v in samples(metrics).items() if k.startswith("fairgate_decisions_total")}
    assert counted == {'fairgate_decisions_total{code="Other",outcome="deny",phase="mutate",team=""}': "100.0"}


def test_the_histogram_is_cumulative_and_bounds_are_inclusive():
    metrics = Metrics()
    for seconds in (0.0001, 0.00011, 0.02, 60.0):
        metrics.decision(Phase.MUTATE, outcome="admit", code="Borrows", team=VISION, seconds=seconds)
    have = samples(metrics)
    name = "fairgate_decision_duration_seconds"
    got = [have[f'{name}_bucket{{le="{le}",phase="mutate"}}'] for le in ("0.0001", "0.00025", "0.025", "5.0", "+Inf")]
    assert got == ["1.0", "2.0", "3.0", "3.0", "4.0"]
    assert have[f'{name}_count{{phase="mutate"}}'] == "4.0"
    assert float(have[f'{name}_sum{{phase="mutate"}}']) == 60.02021


def test_a_broken_edit_shows_until_a_good_one():
    metrics = Metrics()
    name = "fairgate_policy_last_reload_successful"
    seen = []
    for is_success in (True, False, True):
        metrics.policy_reload(is_success=is_success)
        seen.append(samples(metrics)[name])
    assert seen == ["1.0", "0.0", "1.0"]


@pytest.mark.parametrize("accept", ["application/openmetrics-text; version=new", "text/plain; version=;=", "\x00"])
def test_an_invalid_accept_header_gets_plain_text(accept):
    metrics = Metrics()
    metrics.policy_reload(is_success=True)
    assert b"fairgate_policy_last_reload_successful 1.0" in metrics.expose(accept).body


def test_a_scrape_comes_in_pieces_that_make_one_exposition():
    metrics = Metrics()
    metrics.decision(Phase.MUTATE, outcome="deny", code="PoolFull", team=VISION, seconds=0.1)
    pieces = list(metrics.expose("application/openmetrics-text; version=1.0.0").pieces)
    assert len(pieces) > 5
    text = b"".join(pieces).decode()
    assert text.count("# EOF") == 1
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["fairgate_decisions"].samples[0].value == 1
    assert len(families) >= 9


def test_the_ledgers_metrics_show_the_results_of_writes_and_the_state_of_objects():
    metrics = Metrics()
    teams = [VISION, TeamName("nlp")]
    counts = metrics.watch_ledger(lambda: [LedgerState(VISION, 3, 12)], teams=lambda: teams)
    counts.wrote("written", charges=4, seconds=0.004)
    counts.wrote("conflict", charges=1, seconds=0.004)
    counts.waited(0.25)
    counts.withdrew()
    counts.orphan()
    counts.bypass(VISION)
    have = samples(metrics)
    want = {
        'fairgate_ledger_writes_total{result="written"}': "1.0",
        'fairgate_ledger_writes_total{result="conflict"}': "1.0",
        'fairgate_ledger_writes_total{result="refused"}': "0.0",
        "fairgate_ledger_batch_charges_sum": "5.0",
        'fairgate_ledger_write_duration_seconds_bucket{le="0.005"}': "2.0",
        "fairgate_ledger_wait_seconds_total": "0.25",
        "fairgate_ledger_withdrawn_total": "1.0",
        "fairgate_ledger_orphans_total": "1.0",
        'fairgate_bypassing_pods_total{team="vision"}': "1.0",
        'fairgate_bypassing_pods_total{team="nlp"}': "0.0",
        'fairgate_ledger_in_flight{team="vision"}': "3.0",
        'fairgate_ledger_lag{team="vision"}': "12.0",
    }
    assert {key: have.get(key) for key in want} == want


def test_the_worlds_metrics_show_departments():
    left = department("left", guaranteed=2, limit_=8)
    shares = policy(team("vision", departments=(left,)), team("nlp", departments=(left,)), departments=(left,))
    metrics = Metrics()
    metrics.watch_world(world(shares, residents=[resident(2, namespace="vision"), resident(1, namespace="nlp")]))
    have = samples(metrics)
    want = {"guaranteed": "2.0", "limit": "8.0", "used": "3.0", "reserved": "0.0", "preemptible": "0.0"}
    want |= {"beyond_share": "1.0", "waiting": "3.0"}
    assert {key: have.get(f'fairgate_department_gpus_{key}{{department="left"}}') for key in want} == want


def test_the_worlds_metrics_show_teams_and_nodes():
    shares = policy(team("vision", guaranteed=2, limit_=None), team("nlp", guaranteed=8, limit_=8), hash="abc123")
    made = world(shares, nodes=[node("n0", gpus=10, model="H100")])
    made.set_namespace(NamespaceFacts("vision", {}, {}))
    made.set_pod(resident(2, namespace="vision", node="n0"))
    made.set_pod(resident(1, namespace="vision", tier="preemptible"))
    metrics = Metrics()
    metrics.watch_world(made)
    have = samples(metrics)
    want = {
        'fairgate_policy_info{policy="abc123"}': "1.0",
        'fairgate_gpus_charged{team="vision",tier="guaranteed"}': "2.0",
        'fairgate_gpus_charged{team="vision",tier="preemptible"}': "1.0",
        'fairgate_gpus_charged{team="nlp",tier="guaranteed"}': "0.0",
        'fairgate_team_gpus_guaranteed{team="vision"}': "2.0",
        'fairgate_team_gpus_limit{team="vision"}': "+Inf",
        'fairgate_team_gpus_limit{team="nlp"}': "8.0",
        'fairgate_team_gpus_used{team="vision"}': "3.0",
        'fairgate_team_gpus_reserved{team="vision"}': "0.0",
        'fairgate_team_gpus_beyond_share{team="vision"}': "1.0",
        'fairgate_team_gpus_waiting{team="vision"}': "1.0",
        'fairgate_gpus_capacity{model="H100",resource="nvidia.com/gpu"}': "10.0",
        'fairgate_gpus_closed{model="H100",resource="nvidia.com/gpu"}': "0.0",
        'fairgate_gpus_free{model="H100",resource="nvidia.com/gpu"}': "8.0",
        'fairgate_gpus_largest_fit{model="H100",resource="nvidia.com/gpu"}': "8.0",
        'fairgate_nodes_whole{model="H100",resource="nvidia.com/gpu"}': "0.0",
    }
    assert {key: have.get(key) for key in want} == want


def test_readiness_and_changes_of_tiers_are_read_on_each_scrape():
    conditions, changes, metrics = {"policy": True}, {}, Metrics()
    metrics.watch_readiness(lambda: conditions)
    metrics.watch_tier_changes(changes)
    conditions["world"] = False
    changes[VISION, Tier.GUARANTEED] = 3
    have = samples(metrics)
    assert (have['fairgate_ready{condition="policy"}'], have['fairgate_ready{condition="world"}']) == ("1.0", "0.0")
    assert have['fairgate_tier_changes_total{team="vision",tier="guaranteed"}'] == "3.0"


def test_the_line_is_exported_by_team_with_releases_and_waits():
    place = world(policy(team("vision"), team("nlp")))
    metrics, released = Metrics(), {}
    queue = metrics.watch_queue(place)
    queue.watch_releases(released)
    place.set_waiting(waiting("a", namespace="vision"))
    place.set_waiting(waiting("b", namespace="vision", foreign_gates=("example.com/gate",)))
    place.set_waiting(waiting("c", namespace="gone"))
    released[VISION, Way.BACKFILL] = 2
    queue.waited(VISION, 30.0)
    have = samples(metrics)
    depth = {team: have[f'fairgate_queue_depth{{team="{team}"}}'] for team in ("vision", "nlp", "unassigned")}
    assert depth == {"vision": "2.0", "nlp": "0.0", "unassigned": "1.0"}
    assume_charges(
        place, [flight_of(pod(namespace="vision", uid=waiting("a").uid), Charge(VISION, Tier.GUARANTEED, ONE_GPU))]
    )
    charged = {name: samples(metrics)[f'fairgate_queue_{name}{{team="vision"}}'] for name in ("depth", "charged")}
    assert charged == {"depth": "1.0", "charged": "1.0"}, "it keeps its gate until its room is free"
    assert have['fairgate_queue_releases_total{team="vision",way="backfill"}'] == "2.0"
    others = ('queue_releases_total{team="vision",way="inTurn"}', 'queue_wait_seconds_count{team="nlp"}')
    assert [have[f"fairgate_{each}"] for each in others] == ["0.0", "0.0"], "rate() does not see a series' first value"
    bucket = 'fairgate_queue_wait_seconds_bucket{{le="{}",team="vision"}}'
    assert (have[bucket.format("10.0")], have[bucket.format("60.0")]) == ("0.0", "1.0")


class Watched:
    def __init__(self, name, *, last_contact, events=0, relists=0, rejected=0):
        self.kind = self
        self.name, self.last_contact = name, last_contact
        self.events, self.relists, self.rejected = events, relists, rejected


@pytest.mark.parametrize(("quietest", "want"), [(90.0, "10.0"), (None, "+Inf")], ids=["silent", "never synced"])
def test_the_age_of_the_world_is_that_of_the_most_silent_watch(quietest, want):
    metrics = ReclaimMetrics()
    watches = [
        Watched("nodes", last_contact=99.0, events=7, relists=1),
        Watched("pods", last_contact=quietest, rejected=2),
    ]
    metrics.watch_feed(watches, clock=lambda: 100.0)
    have = samples(metrics)
    assert have["fairgate_world_age_seconds"] == want
    assert have['fairgate_watch_events_total{kind="nodes"}'] == "7.0"
    assert have['fairgate_watch_relists_total{kind="nodes"}'] == "1.0"
    assert have['fairgate_watch_rejected_objects_total{kind="pods"}'] == "2.0"


@pytest.mark.parametrize("make", [Metrics, ReclaimMetrics])
def test_a_candidate_has_a_label_for_its_lease(make):
    metrics = make()
    metrics.watch_leader(lambda: LeaderStatus("fairgate", is_leading=True, terms=2, events={"written": 5}))
    have = samples(metrics)
    assert have['fairgate_leader{lease="fairgate"}'] == "1.0"
    assert have['fairgate_leader_terms_total{lease="fairgate"}'] == "2.0"
    assert have['fairgate_events_total{outcome="written"}'] == "5.0"
    assert have['fairgate_events_total{outcome="dropped"}'] == "0.0"


def test_the_evictors_gauges_are_in_gpus():
    metrics = ReclaimMetrics()
    metrics.watch(held_nodes=lambda: 2, largest_room=lambda: gpus(7.5))
    metrics.victim(VISION, gpu_unit_seconds=gpus(30))
    have = samples(metrics)
    assert have["fairgate_reclaim_held_nodes"] == "2.0"
    assert have["fairgate_reclaim_largest_seat_gpus"] == "7.5"
    assert have['fairgate_reclaim_lost_gpu_seconds_total{team="vision"}'] == "30.0"


def test_pods_without_a_decision_are_counted_by_team_where_fairgate_would_have_decided():
    rules = policy(team("vision", namespaces=("vision",)), team("nlp", namespaces=("nlp",)))
    past, decided = (resident(2, name=name, namespace="vision", node="n") for name in ("past", "decided"))
    theirs = resident(1, name="ds", namespace="vision", node="n", handling=Handling.DAEMON_SET, has_decision=False)
    metrics = Metrics()
    metrics.watch_world(world(rules, [node("n")], [past._replace(has_decision=False), decided, theirs]))
    have = samples(metrics)
    assert have['fairgate_undecided_pods{team="vision"}'] == "1.0"
    assert have['fairgate_undecided_pods{team="nlp"}'] == "0.0"
