"""Registration by files of kube-apiserver: what the API cannot take away, and what comes after files."""

import json
from http import HTTPStatus

import pytest
import yaml
from click.testing import CliRunner

from tests.control_plane.api import ApiError
from tests.control_plane.cleanup import ADMISSION
from tests.control_plane.minors import needs
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, make_nodes, wait_bound, wait_for
from tests.scenarios import serving, uninstalling
from tests.scenarios.gpu_adder import adding_gpus
from tests.scenarios.standing_fairgate import DECISION, TIER, serve_fairgate
from webhook.cli.main import main
from webhook.kube.registration.guards import PARAMETRIC
from webhook.kube.registration.static_files import REGISTERED_GUARDS, WEBHOOKS

pytestmark = [pytest.mark.cluster, needs("1.37", "before, registration by files is off")]

SIZE = {"cpu": "1", "memory": "1Gi"}
NOWHERE = "https://127.0.0.1:1"


def write_files(folder, policy, *more, url=NOWHERE):
    command = ["manifests", "--policy", policy, "--url", url, "--static", folder, *more]
    done = CliRunner().invoke(main, [str(each) for each in command], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def reads_files(folder):
    return {"kube-apiserver": (f"--admission-control-config-file={folder}/admission.yaml",)}


@pytest.fixture
def folder(tmp_path):
    """A folder that registers nothing yet: an API server starts with it."""
    serving.write_policy(tmp_path / "policy", serving.policy_of([]))
    write_files(tmp_path / "static", tmp_path / "policy", "--enforce", "off")
    return tmp_path / "static"


def doctor(fairgate):
    command = ["doctor", "--kubeconfig", str(fairgate.cluster.kubeconfig), "-n", fairgate.team_a, "-o", "json"]
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    return {each["check"]: (each["state"], each["message"]) for each in json.loads(done.stdout)["findings"]}


def remove_objects(cluster):
    """What an admin may do by the API: every webhook and every guard that is in a file goes."""
    for each in (*WEBHOOKS, *REGISTERED_GUARDS):
        if each.name not in PARAMETRIC:
            cluster.api.delete(each.path)


def refusal(cluster, namespace, made):
    with pytest.raises(ApiError) as error:
        cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", made)
    return error.value


def register_by_files(fairgate, folder):
    """Write the files, wait until they count beside the objects, and remove the objects."""
    write_files(folder, fairgate.policy, "--ca", fairgate.ca, url=fairgate.url)

    def counts():
        found = doctor(fairgate)
        assert "each pod is reviewed twice" in found["webhooks"][1], found
        assert "from files, and as objects besides" in found["guards"][1], found
        return True

    wait_for(fairgate.cluster, counts, what="doctor sees both registrations", timeout=90)


def test_what_is_in_files_holds_whatever_is_deleted_and_both_at_once_review_the_same(start_control_plane, folder):
    cluster = start_control_plane(extra_args=reads_files(folder))
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, is_own=True) as fairgate:
        mine = fairgate.team_a
        register_by_files(fairgate, folder)
        create_pod(cluster, mine, pod("twice", gpus=4, **SIZE))
        wait_bound(cluster, mine, "twice")
        assert fairgate.charged("a") == 4
        terms = get_pod(cluster, mine, "twice")["spec"]["affinity"]["nodeAffinity"]
        assert len(terms["preferredDuringSchedulingIgnoredDuringExecution"]) == 2, "written once"

        remove_objects(cluster)
        wait_for(cluster, lambda: doctor(fairgate)["webhooks"][0] == "ok", what="only files are left")
        found = doctor(fairgate)
        assert (found["guards"][0], found["reachable"][0], found["certificates"][0]) == ("ok", "ok", "ok"), found
        create_pod(cluster, mine, pod("by-files", gpus=4, **SIZE))
        wait_bound(cluster, mine, "by-files")
        assert fairgate.charged("a") == 8
        over = refusal(cluster, mine, pod("over", gpus=13, **SIZE))
        assert "mutate.static.fairgate.dev" in over.message
        assert "exceeded quota: team a" in over.message
        path = f"/api/v1/namespaces/{mine}/pods/by-files"
        with pytest.raises(ApiError, match=r"fairgate-labels\.static\.k8s\.io"):
            cluster.api.patch(path, {"metadata": {"labels": {TIER: "preemptible"}}})

        made = yaml.safe_load((folder / "mutating-webhooks" / "fairgate.yaml").read_text())
        with pytest.raises(ApiError, match="reserved for static manifest-based configurations"):
            cluster.api.create(f"{ADMISSION}/mutatingwebhookconfigurations", made)
        assert not cluster.api.exists(f"{ADMISSION}/mutatingwebhookconfigurations/zz-fairgate.static.k8s.io")

        done = uninstalling.uninstall(cluster)
        assert done.exit_code == 1
        assert "remove them from every API server" in done.stderr
        create_pod(cluster, mine, pod("still", gpus=1, **SIZE))
        assert TIER in get_pod(cluster, mine, "still")["metadata"]["labels"]


def test_a_webhook_that_adds_gpus_after_the_files_were_asked_lets_no_pod_pass_uncharged(
    start_control_plane, folder, tmp_path
):
    cluster = start_control_plane(extra_args=reads_files(folder))
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, is_own=True) as fairgate, adding_gpus(cluster, tmp_path, name="adder"):
        mine = fairgate.team_a
        objects = {each: cluster.api.get(each.path) for each in WEBHOOKS}
        register_by_files(fairgate, folder)
        remove_objects(cluster)
        wait_for(cluster, lambda: doctor(fairgate)["webhooks"][0] == "ok", what="only files are left")

        create_pod(cluster, mine, pod("more", gpus=1, labels={"adds": "3"}, **SIZE))
        wait_for(cluster, lambda: fairgate.charged("a") == 3, what="decided again for what it has in the end")
        decision = json.loads(get_pod(cluster, mine, "more")["metadata"]["annotations"][DECISION])
        assert decision["gpus"] == "3"

        late = pod("late", labels={"adds": "2"}, **SIZE)
        refused = refusal(cluster, mine, late)
        assert refused.status == HTTPStatus.TOO_MANY_REQUESTS
        assert "did not pass Fairgate's mutating webhook" in refused.message
        assert fairgate.charged("a") == 3

        mutating = next(made for each, made in objects.items() if each.name == "zz-fairgate")
        mutating["metadata"] = {"name": "zz-fairgate"}
        cluster.api.create(f"{ADMISSION}/mutatingwebhookconfigurations", mutating)

        def is_decided():
            try:
                return TIER in cluster.api.create(f"/api/v1/namespaces/{mine}/pods", late)["metadata"]["labels"]
            except ApiError:
                return False

        wait_for(cluster, is_decided, what="a webhook of the API comes after the other one")
        assert fairgate.charged("a") == 5
