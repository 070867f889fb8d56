"""`helm uninstall`: a Job lets go what waits and removes what helm would leave, while all processes still run."""

from __future__ import annotations

import pytest

from tests.charts.helm import CHART, KUBE_VERSION, NAMESPACE, RELEASE, WITH_UNINSTALL, helm, kinds, render
from tests.charts.installed import DEFINITIONS, installed
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, make_namespace, make_nodes, wait_bound, wait_for
from tests.scenarios.evictor import ask, fill, held_nodes
from tests.scenarios.uninstalling import asking, gated, left
from webhook.kube.registration.static_files import certificates, leases

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("helm_binary")]

POLICY = """\
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: a, namespaces: [FIRST], gpus: {guaranteed: 20, limit: 36}}
  - {name: b, namespaces: [SECOND], gpus: {guaranteed: 20, limit: 40}}
defaults: {onLimit: queue, onNoRoom: queue}
reclaim: {notice: 5m, minimumRuntime: 0s}
"""
OF_THE_RELEASE = (*leases(NAMESPACE), certificates(NAMESPACE, f"{RELEASE}-certs"))
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def teams(cluster, tmp_path):
    """The namespaces of two teams, and the flags of helm with their policy."""
    first, second = make_namespace(cluster), make_namespace(cluster)
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("FIRST", first).replace("SECOND", second))
    return first, second, ("--set-file", f"policy={file}", "--set", "replicaCount=1,server.drainSeconds=1")


def test_helm_uninstall_leaves_no_pod_in_line_no_held_node_and_no_object(cluster, teams):
    first, second, flags = teams
    make_nodes(cluster, 4)
    with installed(cluster, *flags) as release:
        release.wait_asked(first)
        release.wait_closed()
        fill(cluster, first, 36)
        for number in range(5):
            create_pod(cluster, first, pod(f"waits-{number}", gpus=1, cpu="1", memory="4Gi"))
        ask(cluster, second, "wants-its-share", gpus=8)
        wait_for(cluster, lambda: held_nodes(cluster), what="a node is held")
        assert len(gated(cluster, first)) == 5
        with asking(cluster, second) as answers:
            said = release.uninstall()
        assert not any(answers), release.hooks.printed
        assert 'release "fairgate" uninstalled' in said
        assert "Fairgate is uninstalled" in release.hooks.printed
        assert not list(left(cluster)), release.hooks.printed
        assert [each.text for each in OF_THE_RELEASE if cluster.api.exists(each.path)] == []
        wait_bound(cluster, first, "waits-0")
        for plural in ("clusterroles", "clusterrolebindings", f"namespaces/{NAMESPACE}/roles"):
            found = [each["metadata"]["name"] for each in cluster.api.list(f"{RBAC}/{plural}")]
            assert not [name for name in found if "fairgate" in name], "the rights of the hook end with it"
        assert len(cluster.api.list(f"/api/v1/namespaces/{first}/pods")) == 41, "no pod was evicted"


def test_a_line_and_definitions_are_kept_by_choice(cluster, teams):
    first, _, flags = teams
    make_nodes(cluster, 1)
    with installed(cluster, *flags, "--set", "crds.keep=true,uninstall.keepQueue=true") as release:
        release.wait_asked(first)
        fill(cluster, first, 10)
        create_pod(cluster, first, pod("waits", gpus=1, cpu="1", memory="4Gi"))
        assert gated(cluster) == ["waits"]
        release.uninstall()
        assert gated(cluster) == ["waits"]
        assert all(map(cluster.api.exists, DEFINITIONS))
        assert "stay, with their objects" in release.hooks.printed


def arguments(*flags):
    [job] = [
        each
        for each in kinds(render(*WITH_UNINSTALL, *flags, with_hooks=True), "Job")
        if "uninstall" in each["metadata"]["name"]
    ]
    return job["spec"]["template"]["spec"]["containers"][0]["args"]


def test_what_helm_template_prints_uninstalls_nothing_where_it_is_applied():
    def printed(*flags: str) -> str:
        return helm("template", RELEASE, CHART, "--namespace", NAMESPACE, "--kube-version", KUBE_VERSION, *flags)

    assert "policy-check" in printed()
    assert "name: fairgate-uninstall" not in printed()
    assert "name: fairgate-uninstall" in printed(*WITH_UNINSTALL)
    assert "name: fairgate-uninstall" not in printed(*WITH_UNINSTALL, "--set", "uninstall.enabled=false")
    assert "name: fairgate-uninstall" not in printed(*WITH_UNINSTALL, "--set", "rbac.create=false")


def test_the_job_knows_what_the_release_is_called():
    assert arguments("--set", "fullnameOverride=gpu-gate") == [
        "uninstall",
        f"--namespace={NAMESPACE}",
        "--deployment=gpu-gate",
        "--certs-secret=gpu-gate-certs",
    ]
    with_cert_manager = arguments("--set", "certManager.enabled=true,crds.keep=true,uninstall.keepQueue=true")
    assert with_cert_manager[3:] == ["--keep-definitions", "--keep-queue"]


def test_the_roles_are_there_only_while_helm_uninstalls_and_smaller_for_what_is_kept():
    def rules(*flags: str) -> list[dict]:
        found = kinds(render(*WITH_UNINSTALL, *flags, with_hooks=True), "Role", "ClusterRole")
        mine = [each for each in found if each["metadata"]["name"] == f"{RELEASE}-uninstall"]
        assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in mine} == {"pre-delete"}
        policies = {each["metadata"]["annotations"]["helm.sh/hook-delete-policy"] for each in mine}
        assert policies == {"before-hook-creation,hook-succeeded,hook-failed"}
        return [rule for each in mine for rule in each["rules"]]

    def may_delete(found: list[dict]) -> set[str]:
        return {kind for rule in found if "delete" in rule["verbs"] for kind in rule["resources"]}

    assert {"customresourcedefinitions", "secrets"} <= may_delete(rules())
    kept = may_delete(rules("--set", "crds.keep=true,certManager.enabled=true"))
    assert not {"customresourcedefinitions", "secrets"} & kept
    for rule in rules():
        is_whole = {*rule["resources"]} <= {"pods", "nodes"}
        assert is_whole or rule["resourceNames"], rule
        assert not {"create", "update", "*"} & {*rule["verbs"]}
