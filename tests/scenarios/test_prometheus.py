"""A real Prometheus scrapes server and evictor: every panel of the dashboard and every alert finds its series."""

import json
import math

import pytest

from tests.control_plane.kubectl import manifest
from tests.control_plane.objects import pod
from tests.control_plane.processes import free_ports
from tests.control_plane.prometheus import prometheus
from tests.control_plane.workbench import make_nodes, wait_for
from tests.observe import alerting
from tests.scenarios import serving
from tests.scenarios.evictor import ask, evictor, fill, wait_bound
from tests.scenarios.standing_fairgate import serve_fairgate
from webhook.kube.registration.static_files import WEBHOOKS

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

LINE = "defaults: {onNoRoom: queue}\nreclaim: {notice: 0s, minimumRuntime: 0s}\n"
LAB = {"departments": [{"name": "lab", "gpus": {"guaranteed": 40, "limit": 40}}]}
SELECTS_NOTHING = {
    "fairgate_ca_expiration_timestamp_seconds": "the server has --certs; without --certs-secret it makes no CA",
    "fairgate_ca_published": "the same",
    "fairgate_gpus_in_maintenance": "no operator upgrades a driver",
    "fairgate_node_rejecting_teams": "only nodes whose kubelet rejects pods have it",
    'fairgate_decisions_total{outcome="retry",phase="validate"}': "a single replica loses no race",
    "fairgate_idle_gpus": "policy does not measure the use of GPUs",
    "fairgate_notify_failing": "policy has no targets for messages",
    'fairgate_decisions_total{code="MutationMissing"}': "the mutating webhook was called",
}
"""Selectors of alerts that select nothing in this run, and why; promtool fires these alerts in tests."""

NOT_YET = {
    "GPUs that pods hold and do not use": "policy does not measure that here",
    "Messages to people": "policy has no targets here",
}
"""Panels that a short run leaves empty, and why."""

EMPTY = {
    "fairgate_moves_": "policy moves no pods",
    "fairgate_reclaim_surplus_victims_total": "no workload states a minimum",
    "fairgate_workloads_below_minimum": "the same",
}
"""Metrics that stay empty here, in panels that show others, and why."""


def scrape(job, url, **more):
    return {"job_name": job, "static_configs": [{"targets": [url.partition("://")[2]]}], **more}


def unanswered(running, queries):
    """The queries that give no number now."""
    return [
        query
        for query in queries
        if not any(not math.isnan(float(series["value"][1])) for series in running.query(query.expr))
    ]


def selectors_of_alerts(running):
    """What the alerts select from Fairgate's own metrics, by Prometheus' own parser."""
    found = {selector for alert in alerting.alerts() for selector in running.selectors(alert["expr"])}
    return sorted(each for each in found if alerting.metrics_in(each) - alerting.API_SERVER)


def value(running, expr):
    (series,) = running.query(expr)
    return float(series["value"][1])


def with_department(fairgate):
    """Put the server's teams into a department, and let pods without room wait in line."""
    gpus = {"guaranteed": 20, "limit": 40}
    teams = [
        {"name": name, "namespaces": [namespace], "department": "lab", "gpus": gpus}
        for name, namespace in (("a", fairgate.team_a), ("b", fairgate.team_b))
    ]
    text = serving.policy_of(teams, more=LINE + f"departments: {json.dumps(LAB['departments'])}\n")
    serving.write_policy(fairgate.policy, text)
    serving.wait_policy(fairgate.cluster, fairgate.policy, lambda: fairgate.get("/readyz"))


@pytest.mark.usefixtures("promtool")
def test_every_panel_shows_something_under_load_and_every_rule_evaluates(cluster):
    make_nodes(cluster, 4)
    (port,) = free_ports(1)
    with (
        serve_fairgate(cluster, limit_a=40, limit_b=40, policy=LINE, is_own=True, has_history=True) as fairgate,
        evictor(fairgate, "--listen", f"127.0.0.1:{port}"),
    ):
        with_department(fairgate)
        mine, theirs = fairgate.team_a, fairgate.team_b
        scrapes = [
            scrape("server", fairgate.url, scheme="https", tls_config={"ca_file": str(fairgate.ca)}),
            scrape("evictor", f"http://127.0.0.1:{port}"),
        ]
        with prometheus(cluster, scrapes, rules=[alerting.ALERTS]) as running:
            names = fill(cluster, mine, 8, gpus=4)
            tiers = dict(zip(names, fairgate.tiers(mine), strict=True))
            assert list(tiers.values()) == ["guaranteed"] * 5 + ["preemptible"] * 3
            denied = cluster.kubectl.run("apply", "-n", mine, "-f", "-", stdin=manifest(pod("more", gpus=9)))
            assert "TeamLimitExceeded" in denied.stderr
            ask(cluster, theirs, "b", gpus=4)
            wait_bound(cluster, theirs, "b")
            cluster.kubectl("delete", "pod", names[0], "-n", mine)
            wait_for(cluster, lambda: fairgate.tiers(mine).count("guaranteed") == 5, what="a borrower is promoted")

            left = [
                each
                for each in alerting.queries()
                if each.panel not in NOT_YET and not any(metric in each.expr for metric in EMPTY)
            ]

            def all_answered():
                left[:] = unanswered(running, left)
                assert not left, left
                return True

            wait_for(cluster, all_answered, what="every panel shows something")
            rules = wait_for(
                cluster,
                lambda: all(rule["health"] == "ok" for rule in running.rules()) and running.rules(),
                what="rules",
            )
            assert {rule["name"] for rule in rules} == {alert["alert"] for alert in alerting.alerts()}
            assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
            silent = [each for each in selectors_of_alerts(running) if not running.query(each)]
            assert silent == sorted(SELECTS_NOTHING)

            held = 'max(fairgate_team_gpus_used{team="a"})'
            wait_for(cluster, lambda: value(running, held) == 24, what="Prometheus knows what the team holds")
            assert value(running, 'max(fairgate_team_gpus_beyond_share{team="a"})') == 4
            assert value(running, 'max(fairgate_department_gpus_used{department="lab"})') == 28
            assert value(running, 'sum(fairgate_gpus_capacity{resource="nvidia.com/gpu"})') == 40
            assert value(running, 'sum(fairgate_gpus_free{resource="nvidia.com/gpu"})') == 12
            assert value(running, "max(fairgate_gpus_largest_fit)") == 6
            assert value(running, "max(fairgate_allocation_ratio)") == pytest.approx(28 / 40)
            assert value(running, 'sum(fairgate_job_wait_seconds_count{size="3-4"})') == 9
            assert (
                value(running, 'sum(fairgate_decisions_total{outcome="deny",code="TeamLimitExceeded",team="a"})') == 1
            )
            assert value(running, "sum(fairgate_queue_releases_total)") == 1


@pytest.mark.usefixtures("promtool")
def test_deleted_webhooks_are_an_alert_until_the_leader_puts_them_back(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, is_own=True) as fairgate:
        scrapes = [scrape("server", fairgate.url, scheme="https", tls_config={"ca_file": str(fairgate.ca)})]
        with prometheus(cluster, scrapes, rules=[alerting.ALERTS]) as running:

            def is_alerted():
                return "FairgateSwitchedOff" in {each["name"] for each in running.rules() if each["state"] == "firing"}

            def is_switched_off():
                for each in WEBHOOKS:  # again and again: the leader may create them
                    if cluster.api.exists(each.path):
                        cluster.api.delete(each.path)
                return is_alerted()

            def is_refused():
                words = ("apply", "--dry-run=server", "-n", fairgate.team_a, "-f", "-")
                return "TeamLimitExceeded" in cluster.kubectl.run(*words, stdin=manifest(pod("big", gpus=99))).stderr

            def are_back():
                return all(cluster.api.exists(each.path) for each in WEBHOOKS)

            wait_for(cluster, is_switched_off, what="the alert", timeout=180, poll=1)
            wait_for(cluster, are_back, what="the leader creates them again", timeout=120)
            wait_for(cluster, is_refused, what="limits hold again", timeout=60)
            wait_for(cluster, lambda: not is_alerted(), what="the alert ends", timeout=120)
