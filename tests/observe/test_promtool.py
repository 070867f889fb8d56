"""Metrics, alerts and dashboard, checked with Prometheus' promtool."""

import json

import pytest

from tests.docs import metrics_page, pages
from tests.observe import alerting

pytestmark = pytest.mark.cluster

MINUTES = 150
DAY = 86_400
CALL_FAILED = (
    'apiserver_admission_webhook_rejection_count{name="validate.fairgate.dev",error_type="calling_webhook_error"}'
)
CALL_SKIPPED = 'apiserver_admission_webhook_fail_open_count{name="mutate.fairgate.dev",type="admit"}'
WRITTEN = 'fairgate_ledger_writes_total{result="written",instance="t"}'
HEALTHY = {
    'fairgate_build_info{component="server",instance="s"}': "1",
    'fairgate_build_info{component="evictor",instance="e"}': "1",
    'fairgate_ready{condition="world",instance="s"}': "1",
    'fairgate_ready{condition="policy",instance="s"}': "1",
    'fairgate_ready{condition="world",instance="t"}': "1",
    'apiserver_admission_webhook_rejection_count{name="validate.fairgate.dev",error_type="no_error"}': "0+1",
    CALL_FAILED: "3",
    CALL_SKIPPED: "3",
    'fairgate_http_errors_total{status="500",instance="s"}': "0",
    'fairgate_decision_duration_seconds_bucket{phase="validate",le="0.01"}': "0+60",
    'fairgate_decision_duration_seconds_bucket{phase="validate",le="5.0"}': "0+60",
    'fairgate_decision_duration_seconds_bucket{phase="validate",le="+Inf"}': "0+60",
    'fairgate_decisions_total{phase="validate",outcome="admit",code="WithinShare",team="a"}': "0+60",
    'fairgate_decisions_total{phase="validate",outcome="retry",code="RaceLost",team="a"}': "0+1",
    'fairgate_decisions_total{phase="validate",outcome="retry",code="MutationMissing",team="a"}': "0",
    'fairgate_bypassing_pods_total{team="a"}': "3",
    'fairgate_ledger_writes_total{result="refused",instance="s"}': "2",
    WRITTEN: "0+60",
    'fairgate_ledger_lag{team="a",instance="s"}': "0",
    "fairgate_ledger_orphans_total": "0+0.1",
    'fairgate_world_age_seconds{instance="s"}': "61",
    'fairgate_watch_rejected_objects_total{kind="pods"}': "1",
    'fairgate_leader{lease="fairgate",instance="s"}': "1",
    'fairgate_leader{lease="fairgate",instance="t"}': "0",
    'fairgate_leader{lease="fairgate-evictor",instance="e"}': "1",
    'fairgate_events_total{outcome="dropped",instance="s"}': "5",
    'fairgate_policy_last_reload_successful{instance="s"}': "1",
    'fairgate_policy_info{policy="p1",instance="s"}': "1",
    'fairgate_policy_info{policy="p1",instance="t"}': "1",
    'fairgate_leader_task_failures_total{task="queue",instance="s"}': "1",
    'fairgate_registration_in_step{instance="s"}': "1",
    'fairgate_webhooks_missing{instance="s"}': "0",
    'fairgate_history_writable{instance="s"}': "1",
    'fairgate_team_gpus_guaranteed{team="a",instance="s"}': "20",
    'fairgate_team_gpus_guaranteed{team="a",instance="t"}': "20",
    'fairgate_team_gpus_waiting{team="a"}': "1",
    'fairgate_gpus_capacity{model="H100",resource="r"}': "32",
    'fairgate_gpus_closed{model="H100",resource="r"}': "16",
    'fairgate_gpus_in_maintenance{model="H100"}': "8",
    'fairgate_gpus_free{model="H100",resource="r"}': "10",
    'fairgate_gpus_fragmented{model="H100",resource="r"}': "5",
    'fairgate_certificate_expiration_timestamp_seconds{instance="s"}': f"{30 * DAY}",
    'fairgate_ca_expiration_timestamp_seconds{instance="s"}': f"{3650 * DAY}",
    'fairgate_ca_published{instance="s"}': "1",
    'fairgate_queue_stalled_seconds{instance="s"}': "20",
    'fairgate_reclaim_waiting_pods{cause="NotEnoughVictims"}': "0",
    'fairgate_reclaim_waiting_pods{cause="NoDomain"}': "0",
    'fairgate_reclaim_waiting_pods{cause="NoNode"}': "4",
    'fairgate_reclaim_evictions_total{outcome="refused"}': "0+0.1",
    "fairgate_reclaim_broken_holds_total": "2",
    'fairgate_moves_stopped_total{reason="NotBack"}': "1",
    'fairgate_node_rejecting_teams{node="n"}': None,
    'fairgate_idle_gpus{team="a"}': "0",
    'fairgate_idle_readings_total{outcome="read"}': "0+1",
    'fairgate_idle_readings_total{outcome="failed"}': "0+0.1",
    'fairgate_notify_failing{target="t"}': "0",
}
TROUBLE = {
    "FairgateSwitchedOff": {
        'fairgate_registration_in_step{instance="s"}': "0",
        'fairgate_webhooks_missing{instance="s"}': "2",
    },
    "FairgateServerAbsent": {'fairgate_build_info{component="server",instance="s"}': None},
    "FairgateNoneReady": {
        'fairgate_ready{condition="policy",instance="s"}': "0",
        'fairgate_ready{condition="world",instance="t"}': "0",
    },
    "FairgateNotReady": {'fairgate_ready{condition="world",instance="s"}': "0"},
    "FairgateUnreachable": {CALL_FAILED: "0+1"},
    "FairgateSkipped": {CALL_SKIPPED: "0+1"},
    "FairgateInternalErrors": {'fairgate_http_errors_total{status="500",instance="s"}': "0+1"},
    "FairgateLeaderTaskFails": {'fairgate_leader_task_failures_total{task="queue",instance="s"}': "0+1"},
    "FairgateQueueStalled": {'fairgate_queue_stalled_seconds{instance="s"}': "30"},
    "FairgateDecisionsSlow": {'fairgate_decision_duration_seconds_bucket{phase="validate",le="0.01"}': "0+50"},
    "FairgateRacesLost": {
        'fairgate_decisions_total{phase="validate",outcome="retry",code="RaceLost",team="a"}': "0+10"
    },
    "FairgateMutationMissing": {
        'fairgate_decisions_total{phase="validate",outcome="retry",code="MutationMissing",team="a"}': "0+1"
    },
    "FairgatePodsBypassed": {'fairgate_bypassing_pods_total{team="a"}': "0+0.1"},
    "FairgateLedgerWritesFail": {
        'fairgate_ledger_writes_total{result="refused",instance="s"}': "0+1",
        WRITTEN: "60",
    },
    "FairgateLedgerBehind": {'fairgate_ledger_lag{team="a",instance="s"}': "40"},
    "FairgateChargesOrphaned": {"fairgate_ledger_orphans_total": "0+1"},
    "FairgateWorldStale": {'fairgate_world_age_seconds{instance="s"}': "121"},
    "FairgateObjectsUnreadable": {'fairgate_watch_rejected_objects_total{kind="pods"}': "0+1"},
    "FairgateNoLeader": {'fairgate_leader{lease="fairgate",instance="s"}': "0"},
    "FairgateTwoLeaders": {'fairgate_leader{lease="fairgate",instance="t"}': "1"},
    "FairgateEventsDropped": {'fairgate_events_total{outcome="dropped",instance="s"}': "0+1"},
    "FairgateMessagesNotDelivered": {'fairgate_notify_failing{target="t"}': "1"},
    "FairgatePolicyRefused": {'fairgate_policy_last_reload_successful{instance="s"}': "0"},
    "FairgatePoliciesDiffer": {
        'fairgate_policy_info{policy="p1",instance="t"}': None,
        'fairgate_policy_info{policy="p2",instance="t"}': "1",
    },
    "FairgateRegistrationBehind": {'fairgate_registration_in_step{instance="s"}': "0"},
    "FairgateHistoryNotWritten": {'fairgate_history_writable{instance="s"}': "0"},
    "FairgateSharesOvercommitted": {'fairgate_gpus_in_maintenance{model="H100"}': None},
    "FairgateCertificateExpires": {
        'fairgate_certificate_expiration_timestamp_seconds{instance="s"}': f"{6 * DAY}",
    },
    "FairgateCAExpires": {'fairgate_ca_expiration_timestamp_seconds{instance="s"}': f"{6 * DAY}"},
    "FairgateCANotPublished": {'fairgate_ca_published{instance="s"}': "0"},
    "FairgateEvictorAbsent": {'fairgate_build_info{component="evictor",instance="e"}': None},
    "FairgateShareNotReclaimed": {'fairgate_reclaim_waiting_pods{cause="NoDomain"}': "2"},
    "FairgateEvictionsRefused": {'fairgate_reclaim_evictions_total{outcome="refused"}': "0+1"},
    "FairgateHoldsBroken": {"fairgate_reclaim_broken_holds_total": "0+1"},
    "FairgateMovedPodsNotBack": {'fairgate_moves_stopped_total{reason="NotBack"}': "0+1"},
    "FairgateNodeRejectsPods": {'fairgate_node_rejecting_teams{node="n"}': "1"},
    "FairgateIdleUnknown": {'fairgate_idle_readings_total{outcome="read"}': "4"},
    "FairgateGpusIdle": {'fairgate_idle_gpus{team="a"}': "8"},
    "FairgateFragmented": {'fairgate_gpus_fragmented{model="H100",resource="r"}': "8"},
}
QUIET = {
    "a CA that was not made yet": {'fairgate_ca_expiration_timestamp_seconds{instance="s"}': "0"},
    "holes that no pod waits for": {
        'fairgate_gpus_fragmented{model="H100",resource="r"}': "8",
        'fairgate_team_gpus_waiting{team="a"}': "0",
    },
    "a model of which nothing is free": {
        'fairgate_gpus_free{model="H100",resource="r"}': "0",
        'fairgate_gpus_fragmented{model="H100",resource="r"}': "0",
    },
    "replicas that leave the lead to one": {
        'fairgate_leader{lease="fairgate",instance="s"}': "0",
        'fairgate_leader{lease="fairgate",instance="t"}': "1",
    },
    "an evictor that keeps no Lease": {'fairgate_leader{lease="fairgate-evictor",instance="e"}': None},
    "one replica of two that cannot write the ledger": {
        'fairgate_ledger_writes_total{result="refused",instance="s"}': "0+1"
    },
    "refusals, which are answers": {
        'apiserver_admission_webhook_rejection_count{name="validate.fairgate.dev",error_type="no_error"}': "0+9"
    },
    "a cluster that was idle for hours": {
        'fairgate_decisions_total{phase="validate",outcome="admit",code="WithinShare",team="a"}': "9",
        'fairgate_decisions_total{phase="validate",outcome="retry",code="RaceLost",team="a"}': "9",
    },
}


def fires(promtool, tmp_path, changes, want):
    """Have promtool run the alerts over healthy series with these changes, and compare those that fire in the end."""
    assert changes.keys() - {'fairgate_policy_info{policy="p2",instance="t"}'} <= HEALTHY.keys()
    series = [
        {"series": name, "values": f"{start}+{step or 0}x{MINUTES}"}
        for name, text in (HEALTHY | changes).items()
        if text is not None
        for start, _, step in [text.partition("+")]
    ]
    expected = {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{MINUTES}m",
        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in want],
    }
    test = {
        "rule_files": [str(alerting.ALERTS)],
        "evaluation_interval": "5m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [expected]}],
    }
    file = tmp_path / "test.yaml"
    file.write_text(json.dumps(test))
    promtool("test", "rules", file)


def test_no_alert_fires_in_a_healthy_cluster(promtool, tmp_path):
    fires(promtool, tmp_path, {}, [])


@pytest.mark.parametrize("alert", [alert["alert"] for alert in alerting.alerts()])
def test_an_alert_fires_alone(promtool, tmp_path, alert):
    fires(promtool, tmp_path, TROUBLE[alert], [alert])


@pytest.mark.parametrize("changes", QUIET.values(), ids=QUIET)
def test_no_alert_fires_for(promtool, tmp_path, changes):
    fires(promtool, tmp_path, changes, [])


def test_the_rules_are_sound(promtool):
    assert f"{len(alerting.alerts())} rules found" in promtool("check", "rules", "--lint-fatal", alerting.ALERTS)


def test_every_expression_of_the_dashboard_is_promql(promtool, tmp_path):
    rules = [
        {"record": f"panel:{number}", "expr": query.expr, "labels": {"panel": query.panel}}
        for number, query in enumerate(alerting.queries())
    ]
    file = tmp_path / "dashboard.yaml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", file)


@pytest.mark.parametrize("metrics", [metrics_page.server(), metrics_page.evictor()], ids=["server", "evictor"])
def test_the_metrics_follow_the_conventions(promtool, metrics):
    assert promtool("check", "metrics", stdin=metrics.expose().body.decode()) == ""


def test_gpu_hours_add_up_over_leaders(promtool, tmp_path):
    """Ten GPUs for twenty hours: one replica leads for the first ten, another for the rest."""
    labels = 'team="a",model="H100",tier="guaranteed"'
    series = [
        {"series": f'fairgate_gpu_seconds_total{{{labels},instance="s"}}', "values": "0+600x600 360000x600"},
        {"series": f'fairgate_gpu_seconds_total{{{labels},instance="t"}}', "values": "_x600 0+600x600"},
    ]
    hours = "sum by (team, tier) (increase(fairgate_gpu_seconds_total[20h])) / 3600"
    assert hours.replace("20h", "30d") in (pages.ROOT / "docs" / "tasks" / "usage.md").read_text()
    wanted = {
        "expr": f"count(abs({hours} - 200) < 1)",
        "eval_time": "20h",
        "exp_samples": [{"labels": "{}", "value": 1}],
    }
    test = {"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [wanted]}]}
    file = tmp_path / "test.yaml"
    file.write_text(json.dumps(test))
    promtool("test", "rules", file)
