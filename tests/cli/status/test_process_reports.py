"""What processes report of messages that do not arrive, in `fairgate status`."""

import json
from contextlib import contextmanager

from click.testing import CliRunner

from tests import forks
from tests.addons.history.usage.test_live import in_thread
from tests.cli.status.test_status import until
from tests.cluster.support.fake_api import Answer, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from webhook.cli.main import main
from webhook.cli.status.run import ProcessReports, Reported
from webhook.kube.ledger import reports
from webhook.policy.watch import load
from webhook.server.settings import FileWorld

POLICY = """apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams: [{name: vision, namespaces: [vision]}]
"""
TARGETS = "notify: {targets: [{name: on-call, url: 'https://h/'}]}\n"
HEAD = {"component": "server", "at": "2026-11-26T10:00:00Z", "version": "1", "policy": "p1", "enforce": "enforce"}
PROBLEM = "target on-call: HTTP 401"


@contextmanager
def cluster(tmp_path, *, policy=POLICY + TARGETS, faults=()):
    """A cluster with reports of two servers; yields the options that name it and the policy."""
    (tmp_path / "p.yaml").write_text(policy)
    with in_thread(FakeApi()) as api:
        api.put(reports.PATH, reports.REPLICAS, replicas={key: {**HEAD, "notify": [PROBLEM]} for key in ("a_1", "b_2")})
        for path, answer in faults:
            api.faults[path].append(answer)
        yield "--policy", str(tmp_path), "--kubeconfig", str(write_kubeconfig(tmp_path / "kubeconfig", api.url))


def status(tmp_path, *words, **more):
    with cluster(tmp_path, **more) as options:
        done = CliRunner().invoke(main, ["status", *options, *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_each_problem_is_named_once(tmp_path):
    assert status(tmp_path).splitlines()[-1] == f"messages to people: {PROBLEM}"
    assert json.loads(status(tmp_path, "-o", "json"))["notify"] == [PROBLEM]


def test_watch_names_them_too(tmp_path):
    out = tmp_path / "out"
    with cluster(tmp_path) as options:
        watching = forks.start("webhook", "status", *options, "--watch", "--interval", "0.1", out=out, err=out)
        try:
            until(lambda: out.read_text().count(f"messages to people: {PROBLEM}") > 1)
        finally:
            watching.kill()


def test_without_targets_or_rights_there_is_nothing_to_say(tmp_path):
    assert "messages to people" not in status(tmp_path, policy=POLICY)
    forbidden = (f"get {reports.PATH}/{reports.REPLICAS}", Answer(403))
    assert "messages to people" not in status(tmp_path, faults=[forbidden])


async def test_a_world_file_has_no_processes(tmp_path):
    (tmp_path / "p.yaml").write_text(POLICY + TARGETS)
    assert await ProcessReports(FileWorld(tmp_path / "world.yaml")).read(load(tmp_path)) == Reported()
