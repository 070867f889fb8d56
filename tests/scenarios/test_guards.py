"""What the API server guards by itself, without a running Fairgate: keys, held room, tenancy of namespaces, devices."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.control_plane.api import ApiError
from tests.control_plane.cleanup import HELD_NODES
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.minors import DEVICES, HAS_DEVICES, device_request, needs
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, make_namespace, wait_for
from tests.scenarios.guarded import guarded_by
from tests.scenarios.serving import TIER
from webhook.core.model.amounts import Namespace, NodeName, Uid
from webhook.core.reclaim.holds import Beneficiary, NodeHold, held_nodes
from webhook.kube.registration.static_files import create_body
from webhook.policy.watch import load

pytestmark = pytest.mark.cluster

POLICY = """\
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: a, namespaceSelector: {matchLabels: {team: a}}, gpus: {guaranteed: 20}}
defaults: {deviceAccess: reject}
exempt: {namespaces: [monitoring, "ci-*"]}
"""
TEAM, DECISION = "fairgate.dev/team", "fairgate.dev/decision"
HELD = {"key": "fairgate.dev/held", "operator": "Exists"}
_READS = 'resource="heldnodes",scope="resource",subresource="",verb="GET"'


@dataclass(frozen=True, slots=True)
class Tenant:
    """A user with all rights of a namespace's admin, who may also write the status of pods and its namespace."""

    cluster: ControlPlane
    namespace: str
    name: str

    def run(self, *arguments: str, stdin: str | None = None, **body: object) -> subprocess.CompletedProcess[str]:
        given = json.dumps(body) if body else stdin
        return self.cluster.kubectl.run("--as", self.name, "-n", self.namespace, *arguments, stdin=given)

    def refused(self, *arguments: str, code: str, **body: object) -> str:
        done = self.run(*arguments, **body)
        assert done.returncode != 0, done.stdout
        assert f"({code})" in done.stderr, done.stderr
        return done.stderr

    def allowed(self, *arguments: str, within: float = 0, **body: object) -> None:
        """`within` seconds: rights reach the API server's authorizer a moment after they were given."""
        deadline = time.monotonic() + within
        while (done := self.run(*arguments, **body)).returncode and time.monotonic() < deadline:
            time.sleep(0.1)
        assert done.returncode == 0, done.stderr


def container(**fields: object) -> dict[str, object]:
    return {"containers": [{"name": "main", "image": "example.invalid/x:1", **fields}]}


def env(value: str) -> dict[str, object]:
    return container(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}])


@pytest.fixture(scope="module")
def guarded(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster with the guards and nothing else of Fairgate."""
    with guarded_by(control_plane, POLICY, tmp_path_factory.mktemp("policy")):
        may(control_plane, "tenant", ["pods", "pods/status", "pods/binding", "pods/ephemeralcontainers"])
        may(control_plane, "namespaces", ["namespaces"])
        yield control_plane


@pytest.fixture
def tenant(guarded: ControlPlane) -> Tenant:
    """A tenant of that cluster, without rights from earlier tests."""
    tenant = Tenant(guarded, make_namespace(guarded), f"ada-{secrets.token_hex(3)}")
    user = f"--user={tenant.name}"
    guarded.kubectl("create", "rolebinding", "tenant", "--clusterrole=tenant", user, "-n", tenant.namespace)
    guarded.kubectl("create", "clusterrolebinding", f"namespaces-{tenant.name}", "--clusterrole=namespaces", user)
    return tenant


def may(cluster: ControlPlane, role: str, resources: list[str], *, group: str = "", verb: str = "*") -> None:
    named = ",".join(f"{each}.{group}" if group else each for each in resources)
    if group:
        rules = [{"apiGroups": [group], "resources": resources, "verbs": [verb]}]
        kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": role}}
        cluster.kubectl.apply(kind | {"rules": rules})
    else:
        cluster.kubectl("create", "clusterrole", role, f"--verb={verb}", f"--resource={named}")


@pytest.mark.promise
def test_labels_and_decision_cannot_be_changed_by_status_or_binding_either(tenant):
    labels = {TIER: "preemptible", TEAM: "a"}
    create_pod(tenant.cluster, tenant.namespace, pod("p", gpus=1, labels=labels, annotations={DECISION: "{}"}))
    for change in (
        ("label", "--overwrite", "pod", "p", f"{TIER}=guaranteed"),
        ("label", "pod", "p", f"{TEAM}-"),
        ("annotate", "--overwrite", "pod", "p", f"{DECISION}=none"),
        ("label", "--overwrite", "--field-manager=fairgate", "pod", "p", f"{TIER}=guaranteed"),
        ("patch", "pod", "p", "--subresource=status", "--patch", json.dumps({"metadata": {"labels": {TEAM: "b"}}})),
    ):
        message = tenant.refused(*change, code="ProtectedKeyChanged")
    assert "only Fairgate may change label fairgate.dev/team: leave it as it is" in message
    tenant.allowed("label", "pod", "p", "mine=yes")
    tenant.allowed("annotate", "pod", "p", "fairgate.dev/checkpointed-at=2026-01-01T00:00:00Z")
    binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n"}}
    path = f"/api/v1/namespaces/{tenant.namespace}/pods/p/binding"
    forged = binding | {"metadata": {"name": "p", "annotations": {DECISION: "none"}}}
    tenant.refused("create", "--raw", path, "-f", "-", code="ProtectedKeyChanged", **forged)


def test_fairgate_is_recognized_by_its_rights_and_its_field_manager(tenant):
    create_pod(tenant.cluster, tenant.namespace, pod("p", gpus=1, labels={TIER: "preemptible", TEAM: "a"}))
    change = ("label", "--overwrite", "pod", "p", f"{TIER}=guaranteed")
    refused = tenant.cluster.kubectl.run(*change, "-n", tenant.namespace)
    assert "(ProtectedKeyChanged)" in refused.stderr, "an admin with kubectl is not Fairgate"
    may(tenant.cluster, "fairgate", ["teamledgers"], group="fairgate.dev")
    tenant.cluster.kubectl(
        "create", "clusterrolebinding", "fairgate", "--clusterrole=fairgate", f"--user={tenant.name}"
    )
    tenant.refused(*change, code="ProtectedKeyChanged")
    tenant.allowed(*change, "--field-manager=fairgate", within=10)


def test_an_evictor_of_its_own_user_marks_idle_pods_and_changes_no_tier(tenant):
    create_pod(tenant.cluster, tenant.namespace, pod("p", gpus=1, labels={TIER: "preemptible", TEAM: "a"}))
    mark = ("annotate", "--overwrite", "pod", "p", "fairgate.dev/idle-since=2026-01-01T00:00:00Z")
    tenant.refused(*mark, "--field-manager=fairgate", code="ProtectedKeyChanged")
    may(tenant.cluster, "node-writer", ["nodes"], verb="patch")
    tenant.cluster.kubectl(
        "create", "clusterrolebinding", "node-writer", "--clusterrole=node-writer", f"--user={tenant.name}"
    )
    tenant.allowed(*mark, "--field-manager=fairgate", within=10)
    tenant.refused("annotate", "pod", "p", "fairgate.dev/idle-since-", code="ProtectedKeyChanged")
    tier = ("label", "--overwrite", "pod", "p", f"{TIER}=guaranteed")
    tenant.refused(*tier, "--field-manager=fairgate", code="ProtectedKeyChanged")


def test_no_pod_can_give_itself_held_room(tenant):
    made = pod("p")
    create_pod(tenant.cluster, tenant.namespace, made)
    tolerating = json.dumps({"spec": {"tolerations": [HELD]}})
    tenant.refused("patch", "pod", "p", "--type=strategic", "--patch", tolerating, code="HeldRoom")
    forged = pod("q", tolerations=[HELD])
    tenant.refused("create", "-f", "-", code="HeldRoom", **forged)
    tenant.cluster.kubectl("patch", "pod", "p", "--type=strategic", "--patch", tolerating, "-n", tenant.namespace)
    tenant.allowed("label", "pod", "p", "mine=yes")


def refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except ApiError as error:
        return "HeldRoom" if "(HeldRoom)" in str(error) else ""
    return ""


@pytest.mark.promise
def test_only_the_beneficiaries_of_a_held_node_are_bound_to_it(guarded, tmp_path):
    suffix = secrets.token_hex(3)
    team = make_namespace(guarded, f"team-{suffix}", labels={"team": "a"})
    others = ["kube-system", make_namespace(guarded, f"ci-{suffix}", labels={"team": "a"}), make_namespace(guarded)]
    others.append(make_namespace(guarded, f"own-{suffix}", labels={"team": "a", "fairgate.dev/exempt": "yes"}))
    (tmp_path / "policy.yaml").write_text(POLICY)
    claim = Beneficiary(Uid("kept-for"), Namespace(team), "p")
    held = held_nodes([NodeHold("h1", NodeName("held"), 0, (claim,))], load(tmp_path))
    guarded.api.create(HELD_NODES, json.loads(create_body(held)))

    def bound(namespace: str, *, uid: str = "another", node: str = "held") -> str:
        made = {"metadata": {"name": "none", "uid": uid}, "target": {"kind": "Node", "name": node}}
        path = f"/api/v1/namespaces/{namespace}/pods/none/binding"
        return refusal(lambda: guarded.api.create(path, made, dryRun="All"))

    wait_for(guarded, lambda: bound(team), what="the held node is guarded")
    assert [bound(team, uid="kept-for"), bound(team, node="free"), *map(bound, others)] == [""] * 6
    # the CPU of the node, bypassing the scheduler
    admin = f"ada-{suffix}"
    guarded.kubectl("create", "rolebinding", "admin", "--clusterrole=admin", f"--user={admin}", "-n", team)
    acting = guarded.acting_as(admin)

    def named(node: str) -> str:
        return refusal(lambda: acting.create(f"/api/v1/namespaces/{team}/pods", pod("p", nodeName=node), dryRun="All"))

    assert (named("held"), named("free")) == ("HeldRoom", "")
    if HAS_DEVICES:
        check_held_devices(guarded, team)
    guarded.api.delete(f"{HELD_NODES}/fairgate")
    wait_for(guarded, lambda: not bound(team), what="the lock is gone with its object")


def check_held_devices(guarded: ControlPlane, team: str) -> None:
    """A node's devices, before the binding."""
    claims = f"{DEVICES}/namespaces/{team}/resourceclaims"
    asked = device_request("gpu", deviceClassName="any")
    guarded.api.create(claims, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [asked]}}})

    def allocated(uid: str, node: str) -> str:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        device = {"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "d"}
        where = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        allocation = {"devices": {"results": [device]}, "nodeSelector": where}
        status = {"allocation": allocation, "reservedFor": [{"resource": "pods", "name": "p", "uid": uid}]}
        return refusal(lambda: guarded.api.patch(f"{claims}/c/status", {"status": status}, dryRun="All"))

    assert (allocated("another", "held"), allocated("kept-for", "held"), allocated("another", "free")) == (
        "HeldRoom",
        "",
        "",
    )


def test_held_nodes_that_do_not_exist_are_not_read_for_each_pod(tenant):
    def reads() -> list[str]:
        metrics = tenant.cluster.api.get("/metrics")
        return [line for line in metrics.splitlines() if line.startswith("apiserver_request_total{") and _READS in line]

    tenant.allowed("run", "first", "--image=example.invalid/x:1", within=10)
    before = reads()
    for number in range(3):
        tenant.allowed("run", f"p-{number}", "--image=example.invalid/x:1")
    assert reads() == before


def test_only_authorized_users_move_a_namespace_to_another_team(tenant):
    for label in ("fairgate.dev/exempt=true", "team=a", "resource.kubernetes.io/admin-access=true"):
        tenant.refused("label", "namespace", tenant.namespace, label, code="TenancyChanged")
    forged = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x", "labels": {"team": "a"}}}
    tenant.refused("create", "-f", "-", code="TenancyChanged", **forged)
    tenant.allowed("label", "namespace", tenant.namespace, "stage=test")
    may(tenant.cluster, "assigner", ["namespaces"], group="fairgate.dev", verb="assign")
    tenant.cluster.kubectl(
        "create", "clusterrolebinding", "assigner", "--clusterrole=assigner", f"--user={tenant.name}"
    )
    tenant.allowed("label", "namespace", tenant.namespace, "team=a", within=10)


def test_pods_that_reach_no_gpu_are_left_alone(tenant):
    for name, spec in (("none", env("none")), ("void", env("void"))):
        tenant.allowed("create", "--dry-run=server", "-f", "-", **pod(name, **spec))
    cluster = tenant.cluster
    suffix = tenant.namespace.removeprefix("test-")
    for name, labels in (("monitoring", {}), (f"ci-{suffix}", {}), (f"own-{suffix}", {"fairgate.dev/exempt": "yes"})):
        made = make_namespace(cluster, name, labels=labels)
        cluster.api.create(f"/api/v1/namespaces/{made}/pods", pod("p", **env("all")), dryRun="All")


@needs("1.31", "1.30 checks the types once, and maybe before it knows the definition of HeldNodes")
def test_kubernetes_reports_no_warnings_for_the_expressions(tenant):
    api = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def checked() -> list[dict]:
        found = [each for each in tenant.cluster.api.list(api) if each["metadata"]["name"].startswith("fairgate-")]
        return found if all("observedGeneration" in each.get("status", {}) for each in found) else []

    found = wait_for(tenant.cluster, checked, what="the types checked")
    assert len(found) == 13
    for each in found:
        assert not each["status"]["typeChecking"].get("expressionWarnings"), each
