"""`fairgate usage` of a person who may not read the history: the sums of teams that the leader published."""

import json

import pytest
from click.testing import CliRunner

from tests.addons.history.usage.test_live import CONFIGURATION, TOKEN, body, in_thread
from tests.cluster.support.fake_api import Answer, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from webhook.cli.main import main
from webhook.kube.ledger import reports

WEEK = {
    "since": 1_795_000_000,
    "until": 1_795_604_800,
    "observedHours": 160.5,
    "teams": [
        {"name": "vision", "guaranteed": 12.5, "preemptible": 3.0, "idle": 4.0, "waiting": 1.0, "lost": 0.5},
        {"name": "nlp", "lost": 1.0, "moved": 0.5, "saved": 2.0, "refused": 2, "refusedGpus": 16.0},
    ],
}


@pytest.fixture
def api():
    with in_thread(FakeApi()) as server:
        client = {"service": {"name": "fairgate", "namespace": "gpus"}}
        server.faults[f"get {CONFIGURATION}"].append(body({"webhooks": [{"clientConfig": client}]}))
        server.faults[f"post {TOKEN}"].append(Answer(403))
        yield server


@pytest.fixture
def usage(api, tmp_path):
    config = str(write_kubeconfig(tmp_path / "kubeconfig", api.url))
    return lambda *words: CliRunner().invoke(main, ["usage", "--kubeconfig", config, *words])


def test_the_last_week_of_the_own_team_needs_no_right_but_that_to_read_reports(api, usage):
    api.put(reports.PATH, reports.USAGE, usage={"at": "2026-11-26T10:00:00Z", "days": {"7": WEEK}})
    done = usage("-o", "json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [(each["name"], each["guaranteed"], each["refused"]) for each in found["usage"]] == [
        ("vision", 12.5, 0),
        ("nlp", 0.0, 2),
    ]
    assert (found["total"]["preemptible"], found["hours"], found["observedHours"]) == (3.0, 168.0, 160.5)
    assert [found["total"][key] for key in ("lost", "moved", "saved")] == [1.5, 0.5, 2.0]
    assert done.stderr.count("\n") == 1
    assert "the sums that the leader published; the history itself cannot be read: " in done.stderr
    assert "403" in done.stderr


def test_an_admin_without_an_account_for_readers_learns_that_and_not_that_a_right_is_missing(api, usage):
    api.faults[f"post {TOKEN}"].clear()
    api.faults[f"post {TOKEN}"].append(Answer(404))
    api.put(reports.PATH, reports.USAGE, usage={"at": "2026-11-26T10:00:00Z", "days": {"7": WEEK}})
    done = usage()
    assert "cannot create serviceaccounts/token: 404" in done.stderr


@pytest.mark.parametrize("words", [("--since", "2d"), ("--by", "user"), ("--until", "1h")])
def test_what_is_not_published_is_refused_with_what_is(api, usage, words):
    api.put(reports.PATH, reports.USAGE, usage={"at": "2026-11-26T10:00:00Z", "days": {"7": WEEK}})
    done = usage(*words)
    assert done.exit_code == 2
    assert "published are the sums of teams alone: --since 7d" in done.stderr


@pytest.mark.parametrize("answer", [403, 404])
def test_without_a_report_the_right_to_the_history_is_named(api, usage, answer):
    api.faults[f"get {reports.PATH}/{reports.USAGE}"].append(Answer(answer))
    done = usage()
    assert done.exit_code == 2
    assert "nor what the leader published" in done.stderr
    assert "docs/reference/rights.md#usage" in done.stderr
