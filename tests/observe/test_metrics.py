import pytest

from webhook.core.names import TeamName
from webhook.observe.ledger import Standing
from webhook.observe.metrics import Metrics, Phase


def samples(metrics):
    text = metrics.expose().body.decode()
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_decisions_are_counted_by_phase_outcome_and_code():
    metrics = Metrics()
    for _ in range(3):
        metrics.decision(Phase.VALIDATE, outcome="deny", code="TeamLimitExceeded", seconds=0.0002)
    key = 'fairgate_decisions_total{code="TeamLimitExceeded",outcome="deny",phase="validate"}'
    assert samples(metrics)[key] == "3.0"


def test_text_that_is_no_code_never_becomes_a_label():
    metrics = Metrics()
    for number in range(100):
        metrics.decision(Phase.MUTATE, outcome="deny", code=f"pod-{number}", seconds=0.0)
    counted = {k: v for k, v in samples(metrics).items() if k.startswith("fairgate_decisions_total")}
    assert counted == {'fairgate_decisions_total{code="Other",outcome="deny",phase="mutate"}': "100.0"}


def test_the_histogram_is_cumulative_and_bounds_are_inclusive():
    metrics = Metrics()
    for seconds in (0.0001, 0.00011, 0.02, 60.0):
        metrics.decision(Phase.MUTATE, outcome="admit", code="Borrows", seconds=seconds)
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
def test_an_accept_header_that_makes_no_sense_gets_plain_text(accept):
    metrics = Metrics()
    metrics.policy_reload(is_success=True)
    assert b"fairgate_policy_last_reload_successful 1.0" in metrics.expose(accept).body


def test_the_ledgers_metrics_tell_what_became_of_writes_and_how_objects_stand():
    metrics = Metrics()
    counts = metrics.watch_ledger(lambda: [Standing(TeamName("vision"), 3, 12)])
    counts.wrote("written", charges=4, seconds=0.004)
    counts.wrote("conflict", charges=1, seconds=0.004)
    counts.waited(0.25)
    counts.withdrew()
    counts.orphan()
    counts.bypass(TeamName("vision"))
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
        'fairgate_ledger_in_flight{team="vision"}': "3.0",
        'fairgate_ledger_lag{team="vision"}': "12.0",
    }
    assert {key: have.get(key) for key in want} == want
