"""`fairgate doctor` on a real installation: healthy, broken in one way after another, and with few rights."""

import json
import signal
from base64 import b64encode

import pytest
from click.testing import CliRunner

from certs.authority import certificate_to_pem, make_ca, new_key
from certs.serving import utc_now
from tests.control_plane.api import ApiError
from tests.control_plane.cleanup import ADMISSION, REPORTS
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, make_nodes, wait_bound, wait_for
from tests.scenarios.evictor import evictor
from tests.scenarios.standing_fairgate import serve_fairgate
from webhook.cli.main import main

pytestmark = pytest.mark.cluster

PUBLIC = {"kubernetes", "coexistence", "pods"}
"""The checks of what the API server shows to every user; sizes of pods are for admins only."""

VALIDATING = f"{ADMISSION}/validatingwebhookconfigurations/fairgate"
MUTATING = f"{ADMISSION}/mutatingwebhookconfigurations/zz-fairgate"


class Doctor:
    """The command, run as one user."""

    def __init__(self, fairgate, kubeconfig):
        self.fairgate, self.kubeconfig = fairgate, kubeconfig

    def __call__(self, *words):
        command = ["doctor", "--kubeconfig", str(self.kubeconfig), "-n", self.fairgate.team_a, "-o", "json", *words]
        done = CliRunner().invoke(main, command, catch_exceptions=False)
        reported = json.loads(done.stdout) if done.stdout else {"findings": []}
        return done.exit_code, [(each["check"], each["state"], each["message"]) for each in reported["findings"]]

    def states(self):
        return {check: state for check, state, _ in self()[1]}

    def waits_for(self, check, words):
        """Wait until a check reports a problem with this text; returns all problems."""

        def is_reported():
            status, found = self()
            wrong = {name: text for name, state, text in found if state == "wrong"}
            assert words in wrong.get(check, ""), found
            assert status == 1
            return wrong

        return wait_for(self.fairgate.cluster, is_reported, what=f"{check}: {words}")

    def waits_until_healthy(self):
        wait_for(self.fairgate.cluster, lambda: self()[0] == 0 or self._complain(), what="healthy")

    def _complain(self):
        raise AssertionError(self())


@pytest.mark.promise
def test_each_part_that_breaks_is_named(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, is_own=True) as fairgate, evictor(fairgate) as evicting:
        cluster.api.delete(f"{REPORTS}/replicas")  # entries of earlier servers: the object is created again
        doctor = Doctor(fairgate, cluster.kubeconfig)
        doctor.waits_until_healthy()
        assert set(doctor.states().values()) == {"ok"}

        good = cluster.api.get(VALIDATING)
        foreign = certificate_to_pem(make_ca(new_key(), now=utc_now()).certificate)
        _edit(cluster, VALIDATING, lambda webhook: _trust(webhook, foreign))
        reported = doctor.waits_for("certificates", "no CA that issued the certificate")
        assert "validate.fairgate.dev" in reported["certificates"]
        assert "x509" in doctor.waits_for("reachable", "failed calling webhook")["reachable"]
        _replace(cluster, VALIDATING, good)
        doctor.waits_until_healthy()

        changing = cluster.api.get(MUTATING)
        cluster.api.delete(MUTATING)
        doctor.waits_for("reachable", "mutate.fairgate.dev was not called")
        assert doctor.states()["webhooks"] == "wrong"
        cluster.api.create(MUTATING.rpartition("/")[0], _bare(changing))
        guard = f"{ADMISSION}/validatingadmissionpolicies/fairgate-labels"
        removed = cluster.api.get(guard)
        cluster.api.delete(guard)
        doctor.waits_for("guards", "ValidatingAdmissionPolicy fairgate-labels is missing")
        cluster.api.create(guard.rpartition("/")[0], _bare(removed))
        doctor.waits_until_healthy()

        file = fairgate.policy / "teams.yaml"
        policy = file.read_text()
        file.write_text(policy.replace("guaranteed", "granted", 1))
        reported = doctor.waits_for("policy", "rejected an invalid edit")
        assert "granted" in reported["policy"]
        file.write_text(policy)

        evicting.stop()
        doctor.waits_for("evictor", "no evictor reports")
        fairgate.stop(signal.SIGTERM)
        doctor.waits_for("server", "no server reports")
        assert doctor.states()["reachable"] == "wrong"


def test_a_leader_that_was_killed_is_named_by_its_lease(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, is_own=True) as fairgate:
        doctor = Doctor(fairgate, cluster.kubeconfig)
        wait_for(cluster, lambda: doctor("--skip", "evictor")[0] == 0, what="healthy")
        fairgate.stop(signal.SIGKILL)
        found = doctor.waits_for("leader", "renewed its Lease")
        assert "it was killed, hangs" in found["leader"]
        fairgate.start()
        told = doctor.waits_for("leader", "reported")  # its report is younger than 35 s, and says that it leads
        assert "different namespaces" not in told["leader"]


def test_a_dry_run_that_would_wait_in_line_is_healthy(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, policy="defaults: {onNoRoom: queue}\n") as fairgate:
        doctor = Doctor(fairgate, cluster.kubeconfig)

        def reachable():
            [found] = [(state, text) for check, state, text in doctor("--skip", "evictor")[1] if check == "reachable"]
            return found

        assert reachable()[0] == "ok"
        assert reachable()[1].endswith("(a dry run): admitted as guaranteed")
        create_pod(cluster, fairgate.team_a, pod("holder", gpus=10))
        wait_bound(cluster, fairgate.team_a, "holder")
        state, text = reachable()
        assert state == "ok"
        assert "(a dry run): queued: waits: " in text
        assert "1st in line" in text
        wait_for(cluster, lambda: doctor("--skip", "evictor")[0] == 0, what="healthy, once the server has reported")


def test_terms_that_a_control_plane_adds_stay_and_its_labels_are_guarded(cluster):
    make_nodes(cluster, 1)
    enforcer = {"key": "control-plane", "operator": "DoesNotExist"}  # as the admissions enforcer of AKS adds it
    with serve_fairgate(cluster, is_own=True) as fairgate:
        doctor = Doctor(fairgate, cluster.kubeconfig)
        wait_for(cluster, lambda: doctor("--skip", "evictor")[0] == 0, what="healthy")
        for path in (MUTATING, VALIDATING):
            _edit(cluster, path, lambda webhook: webhook["namespaceSelector"]["matchExpressions"].append(enforcer))
        written = [cluster.api.get(path)["metadata"]["resourceVersion"] for path in (MUTATING, VALIDATING)]
        user = f"labeler-{fairgate.team_a}"
        cluster.kubectl("create", "clusterrole", user, "--verb=patch", "--resource=namespaces")
        cluster.kubectl("create", "clusterrolebinding", user, f"--clusterrole={user}", f"--user={user}")
        api, namespace = cluster.acting_as(user), f"/api/v1/namespaces/{fairgate.team_a}"

        def is_guarded():
            try:
                api.patch(namespace, {"metadata": {"labels": {"control-plane": "mine"}}}, dryRun="All")
            except ApiError as error:
                return "TenancyChanged" in error.message
            return False

        wait_for(cluster, is_guarded, what="a label that excludes a namespace is guarded")
        wait_for(cluster, lambda: doctor("--skip", "evictor")[0] == 0, what="healthy with the added terms")
        assert [cluster.api.get(path)["metadata"]["resourceVersion"] for path in (MUTATING, VALIDATING)] == written
        cluster.kubectl("label", "namespace", fairgate.team_a, "control-plane=by-an-admin")
        found = doctor.waits_for("webhooks", "1 namespace of team a are not reviewed")
        assert fairgate.team_a in found["webhooks"]
        viewer = f"viewer-{fairgate.team_a}"
        cluster.kubectl("create", "clusterrolebinding", viewer, "--clusterrole=fairgate-viewer", f"--user={viewer}")
        theirs = Doctor(fairgate, cluster.user_kubeconfig(viewer))
        assert fairgate.team_a not in theirs.waits_for("webhooks", "1 namespace of team a are not reviewed")["webhooks"]
        bypassing = create_pod(cluster, fairgate.team_a, pod("bypassing", gpus=1))
        assert "fairgate.dev/team" not in bypassing["metadata"].get("labels", {})
        counted = "fairgate_bypassing_pods_total"
        wait_for(cluster, lambda: fairgate.metric(counted, team="a") == 1, what="a pod there is counted as bypassing")
        assert fairgate.charged("a") == 1


def test_with_few_rights_the_missing_ones_are_named_and_nothing_is_guessed(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster) as fairgate:
        name = f"viewer-{fairgate.team_a}"
        doctor = Doctor(fairgate, cluster.user_kubeconfig(name))
        status, found = doctor()
        assert status == 2
        assert {state for check, state, _ in found if check not in PUBLIC} == {"unknown"}
        cluster.kubectl("create", "clusterrolebinding", name, "--clusterrole=fairgate-viewer", f"--user={name}")
        doctor.waits_for("evictor", "no evictor reports")

        def sees_all_but_a_dry_run():
            status, found = doctor("--skip", "evictor")
            states = {check: state for check, state, _ in found if state != "ok"}
            assert (status, states) == (2, {"reachable": "unknown", "pods": "skipped"}), found
            return True

        wait_for(cluster, sees_all_but_a_dry_run, what="a viewer sees a healthy installation")
        assert doctor("--skip", "evictor", "--skip", "reachable")[0] == 0


def _edit(cluster, path, change):
    """Change every webhook of a configuration."""
    found = cluster.api.get(path)
    for webhook in found["webhooks"]:
        change(webhook)
    cluster.api.request("PUT", path, body=found)


def _replace(cluster, path, made):
    made["metadata"]["resourceVersion"] = cluster.api.get(path)["metadata"]["resourceVersion"]
    cluster.api.request("PUT", path, body=made)


def _trust(webhook, pem):
    webhook["clientConfig"]["caBundle"] = b64encode(pem).decode()


def _bare(made):
    return {**made, "metadata": {"name": made["metadata"]["name"], "labels": made["metadata"].get("labels", {})}}
