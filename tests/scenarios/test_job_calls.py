"""How often the API server calls Fairgate for a Job, and what its owner reads in the answer to the only call."""

import json
from contextlib import contextmanager

import pytest

from tests.control_plane.objects import job
from tests.control_plane.workbench import make_nodes, wait_for
from tests.scenarios.standing_fairgate import serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "100m", "memory": "1Gi"}
GANG = {"fairgate.dev/gang": "true"}
LEFT_ALONE = {"fairgate.dev/job-evictions": "count"}
RULE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
EXIT = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
REJECT = "workloads: {onLimit: reject}"


def calls(fairgate):
    """How many requests of the API server were answered, by path."""
    phases = ("jobs", "workloads", "gangs", "mutate", "validate", "claims")
    counted = {phase: fairgate.metric("fairgate_decisions_total", phase=phase) for phase in phases}
    return {phase: count for phase, count in counted.items() if count}


def apply(fairgate, made, *flags):
    """What kubectl prints about a Job."""
    namespace = ("-n", fairgate.team_a)
    done = fairgate.cluster.kubectl.run("create", *namespace, *flags, "-f", "-", stdin=json.dumps(made))
    return done.stderr + done.stdout


def made_job(name="train", pods=1, *, restart="Never", rules=(), **annotations):
    """A Job that is suspended: it has no pods yet."""
    made = job(name, pods=pods, gpus=1, **SIZE)
    made["metadata"]["annotations"] = annotations
    made["spec"]["suspend"] = True
    made["spec"]["template"]["spec"]["restartPolicy"] = restart
    if rules != ():
        made["spec"]["podFailurePolicy"] = {"rules": rules}
    return made


def test_twenty_jobs_cost_one_call_each_and_two_for_each_pod(cluster):
    make_nodes(cluster, 3)
    with serve_fairgate(cluster) as fairgate:
        cluster.kubectl.apply([job(f"j{i}", gpus=1, **SIZE) for i in range(20)], "-n", fairgate.team_a)
        wait_for(cluster, lambda: fairgate.charged("a") == 20, what="20 GPUs charged")
        cluster.kubectl("delete", "jobs", "--all", "-n", fairgate.team_a)
        wait_for(cluster, lambda: fairgate.charged("a") == 0, what="all pods are gone")
        assert calls(fairgate) == {"jobs": 20, "mutate": 20, "validate": 20}


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(made_job(pods=30), {"jobs": 1}, id="a Job"),
        pytest.param(made_job(pods=30, rules=[EXIT]), {"jobs": 1}, id="rules of its own"),
        pytest.param(made_job(pods=30, rules=[EXIT, RULE]), {"jobs": 1}, id="a rule of its own about evictions"),
        pytest.param(made_job(pods=30, rules=None), {"jobs": 1}, id="a policy without rules"),
        pytest.param(made_job(pods=30, **GANG), {"jobs": 1}, id="a gang"),
        pytest.param(made_job(pods=30, rules=[EXIT] * 20), {"jobs": 1, "workloads": 1}, id="no room for the rule"),
        pytest.param(made_job(pods=30, restart="OnFailure"), {"workloads": 1}, id="it may have no rule"),
        pytest.param(made_job(pods=30, restart="OnFailure", **GANG), {"gangs": 1, "workloads": 1}, id="such a gang"),
        pytest.param(made_job(pods=30, rules=[RULE], **LEFT_ALONE), {"workloads": 1}, id="left alone"),
    ],
)
def test_its_owner_reads_once_why_a_job_can_never_run_as_a_whole(cluster, made, want):
    with serve_fairgate(cluster) as fairgate:
        text = apply(fairgate, made)
        assert text.count("Warning: Job train: needs 30 GPUs, team a's limit is 20") == 1
        assert calls(fairgate) == want
        spec = cluster.api.get(f"/apis/batch/v1/namespaces/{fairgate.team_a}/jobs/train")["spec"]
        is_marked = made["metadata"]["annotations"] == GANG
        assert spec["template"]["metadata"].get("annotations", {}) == (GANG if is_marked else {})


def test_a_job_of_a_controller_gets_the_rule_and_no_warning(cluster):
    with serve_fairgate(cluster) as fairgate:
        schedule = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": made_job(pods=30)["spec"]}}
        nightly = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": schedule}
        assert "needs 30 GPUs" in apply(fairgate, nightly)
        made = ("job", "by-hand", "--from=cronjob/nightly", "-n", fairgate.team_a)
        assert "Warning" not in fairgate.cluster.kubectl.run("create", *made).stderr
        assert calls(fairgate) == {"workloads": 1, "jobs": 1}


def test_policy_refuses_a_job_in_the_first_call_also_in_a_dry_run(cluster):
    with serve_fairgate(cluster, policy=REJECT) as fairgate:
        for flags in (("--dry-run=server",), ()):
            text = apply(fairgate, made_job(pods=30, rules=[EXIT]), *flags)
            want = 'admission webhook "jobs.fairgate.dev" denied the request: exceeded quota: Job train: needs 30 GPUs'
            assert want in text
            assert "Warning" not in text
        assert "created" in apply(fairgate, made_job(pods=20))
        assert calls(fairgate) == {"jobs": 3}
        assert fairgate.refused("TeamLimitExceeded") == 2


@contextmanager
def earlier_registration(cluster):
    """Register the webhook for all kinds of workloads again, by the conditions of an earlier version."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    found = cluster.api.get(f"{path}/fairgate")
    [hook] = [each for each in found["webhooks"] if each["name"] == "workloads.fairgate.dev"]
    hook["matchConditions"] = hook["matchConditions"][:1]
    cluster.api.create(path, {**found, "metadata": {"name": "earlier"}, "webhooks": [hook]})
    try:
        yield
    finally:
        cluster.api.delete(f"{path}/earlier")


def test_a_registration_of_an_earlier_version_still_works_and_shows_each_warning_once(cluster):
    with serve_fairgate(cluster) as fairgate, earlier_registration(cluster):

        def both():
            fairgate.count_from_now()
            text = apply(fairgate, made_job(pods=30), "--dry-run=server")
            assert calls(fairgate) == {"jobs": 1, "workloads": 1}
            return text

        text = wait_for(cluster, both, what="the API server calls both")
        assert text.count("Warning: Job train: needs 30 GPUs, team a's limit is 20") == 1
