"""Targets that messages do not reach, in `fairgate status`."""

import json

from click.testing import CliRunner

from tests.cli.usage.test_live import in_thread
from tests.cluster.support.fake_api import Answer, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from webhook.cli.main import main
from webhook.cli.status.notify_problems import notify_problems
from webhook.kube.ledger import reports
from webhook.policy.load import load
from webhook.server.settings import FileWorld

POLICY = """apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams: [{name: vision, namespaces: [vision]}]
"""
TARGETS = "notify: {targets: [{name: on-call, url: 'https://h/'}]}\n"
HEAD = {"component": "server", "at": "2026-11-26T10:00:00Z", "version": "1", "policy": "p1", "enforce": "enforce"}
PROBLEM = "target on-call: HTTP 401"


def status(tmp_path, *words, policy=POLICY + TARGETS, faults=()):
    (tmp_path / "p.yaml").write_text(policy)
    with in_thread(FakeApi()) as api:
        api.put(reports.PATH, reports.REPLICAS, replicas={key: {**HEAD, "notify": [PROBLEM]} for key in ("a_1", "b_2")})
        for path, answer in faults:
            api.faults[path].append(answer)
        config = str(write_kubeconfig(tmp_path / "kubeconfig", api.url))
        done = CliRunner().invoke(main, ["status", "--policy", str(tmp_path), "--kubeconfig", config, *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_each_problem_is_named_once(tmp_path):
    assert status(tmp_path).splitlines()[-1] == f"messages to people: {PROBLEM}"
    assert json.loads(status(tmp_path, "-o", "json"))["notify"] == [PROBLEM]


def test_without_targets_or_rights_there_is_nothing_to_say(tmp_path):
    assert "messages to people" not in status(tmp_path, policy=POLICY)
    forbidden = (f"get {reports.PATH}/{reports.REPLICAS}", Answer(403))
    assert "messages to people" not in status(tmp_path, faults=[forbidden])


def test_a_world_file_has_no_processes(tmp_path):
    (tmp_path / "p.yaml").write_text(POLICY + TARGETS)
    assert notify_problems(FileWorld(tmp_path / "world.yaml"), load(tmp_path)) == []
