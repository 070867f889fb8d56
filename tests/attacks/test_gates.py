"""Gates of pods in line: only admins of the cluster remove them, also while Fairgate is down."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.attacks.attacker import Attacker, make_attacker
from tests.control_plane.api import JSON_PATCH, STRATEGIC_PATCH, ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, make_namespace
from tests.scenarios.guarded import guarded_by
from tests.scenarios.uninstalling import GATE, GATED

pytestmark = pytest.mark.cluster

POLICY = """\
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: a, namespaces: ["test-*"], gpus: {guaranteed: 20}}
defaults: {deviceAccess: reject}
"""
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
WITHOUT = {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}


@pytest.fixture(scope="module")
def attacker(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacker]:
    """An admin of a namespace with all rights on guards that an admin of a namespace could be given by mistake.

    It may read this guard, delete another one, and delete objects of the same name.
    """
    with guarded_by(control_plane, POLICY, tmp_path_factory.mktemp("policy")):
        rules = [
            {"resources": ["validatingadmissionpolicybindings"], "verbs": ["get", "list"]},
            {
                "resources": ["validatingadmissionpolicybindings"],
                "resourceNames": ["fairgate-sizes"],
                "verbs": ["delete"],
            },
            {"resources": ["validatingadmissionpolicies"], "resourceNames": ["fairgate-labels"], "verbs": ["delete"]},
        ]
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "guards"}}
        group = {"apiGroups": ["admissionregistration.k8s.io"]}
        control_plane.kubectl.apply(role | {"rules": [group | rule for rule in rules]})
        made = make_attacker(control_plane, make_namespace(control_plane))
        user = f"--user={made.user}"
        control_plane.kubectl("create", "clusterrolebinding", "guards", "--clusterrole=guards", user)
        control_plane.kubectl(
            *("create", "role", "everything", "-n", made.namespace, "--verb=*"),
            "--resource=pods,pods/status,pods/binding,pods/ephemeralcontainers,pods/resize",
        )
        control_plane.kubectl("create", "rolebinding", "everything", "--role=everything", user, "-n", made.namespace)
        yield made


def test_no_admin_of_a_namespace_removes_the_gate_of_a_pod_in_line(attacker):
    create_pod(attacker.cluster, attacker.namespace, pod("p", **GATED, labels={"fairgate.dev/team": "a"}))
    path = f"/api/v1/namespaces/{attacker.namespace}/pods/p"

    def refused(call) -> str:
        try:
            call()
        except ApiError as error:
            return error.message
        return ""

    def replaced() -> None:
        found = get_pod(attacker.cluster, attacker.namespace, "p")
        found["spec"].pop("schedulingGates", None)
        attacker.api.request("PUT", path, found)

    by_index = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    attempts = {
        "a patch": lambda: attacker.api.patch(path, WITHOUT, content_type=STRATEGIC_PATCH),
        "as Fairgate": lambda: attacker.api.patch(path, WITHOUT, content_type=STRATEGIC_PATCH, fieldManager="fairgate"),
        "by its place": lambda: attacker.api.patch(path, by_index, content_type=JSON_PATCH),
        "a whole pod": replaced,
    }
    said = {name: refused(call) for name, call in attempts.items()}
    assert {name: text for name, text in said.items() if "(ProtectedKeyChanged)" not in text} == {}
    assert "only Fairgate may change scheduling gate fairgate.dev/queue" in said["a patch"]
    assert get_pod(attacker.cluster, attacker.namespace, "p")["spec"]["schedulingGates"] == [{"name": GATE}]


def test_forged_groups_and_names_of_admins_do_not_give_the_right(attacker):
    """Impersonation is a right of its own, which an admin of a namespace lacks."""
    create_pod(attacker.cluster, attacker.namespace, pod("q", **GATED))
    patch = ("patch", "pod", "q", "-n", attacker.namespace, "--type=strategic", "-p", json.dumps(WITHOUT))
    own = attacker.cluster.kubectl.with_kubeconfig(attacker.cluster.service_account_kubeconfig(attacker.namespace))
    attacker.cluster.kubectl(
        *("create", "rolebinding", "sa", "-n", attacker.namespace, "--clusterrole=admin"),
        f"--serviceaccount={attacker.namespace}:default",
    )
    assert "cannot impersonate" in own.run(*patch, "--as=admin", "--as-group=system:masters").stderr
    refusals = ("(ProtectedKeyChanged)", "cannot patch resource")  # the rights of the account come a moment later
    assert any(each in own.run(*patch).stderr for each in refusals)
    assert get_pod(attacker.cluster, attacker.namespace, "q")["spec"]["schedulingGates"] == [{"name": GATE}]


def test_who_may_delete_the_guard_may_remove_a_gate_but_change_nothing_else(attacker):
    """It grants nothing: without the guard the patch needs no right but that on pods."""
    cluster = attacker.cluster
    create_pod(cluster, attacker.namespace, pod("r", **GATED, labels={"fairgate.dev/team": "a"}))
    path = f"/api/v1/namespaces/{attacker.namespace}/pods/r"
    both = WITHOUT | {"metadata": {"labels": {"fairgate.dev/team": "b"}}}
    with pytest.raises(ApiError, match=r"label fairgate.dev/team, scheduling gate .*\(ProtectedKeyChanged\)"):
        cluster.api.patch(path, both, content_type=STRATEGIC_PATCH)
    cluster.api.patch(path, WITHOUT, content_type=STRATEGIC_PATCH)
    assert "schedulingGates" not in get_pod(cluster, attacker.namespace, "r")["spec"]
    assert cluster.api.exists(f"{BINDINGS}/fairgate-labels")
