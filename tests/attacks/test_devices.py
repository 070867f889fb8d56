"""Access to GPUs beyond the request, with `deviceAccess: reject`: the API server refuses it without Fairgate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.attacks.attacker import Attacker, make_attacker
from tests.attacks.reaching import ALL, GPU, REACHING, container, env, main, node_path, security
from tests.control_plane.api import MERGE_PATCH, STRATEGIC_PATCH, ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, make_namespace
from tests.scenarios.guarded import guarded_by

pytestmark = pytest.mark.cluster

POLICY = """\
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: a, namespaces: [none], gpus: {guaranteed: 20}}
defaults: {deviceAccess: reject, hostPaths: [/data]}
"""


@pytest.fixture(scope="module")
def attacker(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacker]:
    """An admin of a namespace in a cluster that has the guards and nothing else of Fairgate."""
    with guarded_by(control_plane, POLICY, tmp_path_factory.mktemp("policy")):
        yield make_attacker(control_plane, make_namespace(control_plane))


def answer(api: Any, path: str, body: dict[str, Any]) -> str:
    """Return the answer to a dry run; "" if it would be allowed."""
    try:
        api.create(path, body, dryRun="All")
    except ApiError as error:
        return error.message
    return ""


def answers(attacker: Attacker, attempts: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the answers to the attempts to create pods."""
    pods = f"/api/v1/namespaces/{attacker.namespace}/pods"
    return {name: answer(attacker.api, pods, pod("p", **made)) for name, made in attempts.items()}


def test_no_pod_is_created_that_reaches_gpus_past_its_request(attacker):
    found = answers(attacker, REACHING)
    assert {name: said for name, said in found.items() if "(UncountedDevice)" not in said} == {}


def test_a_gpu_runtime_gives_no_gpus_to_containers_that_request_none(attacker):
    made = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}
    attacker.cluster.kubectl.apply([made])
    plain, asking = main(), main(**GPU) | {"name": "asking"}
    zero = main(resources={"limits": {"nvidia.com/gpu": "0"}})
    pinned = main(**env(("NVIDIA_VISIBLE_DEVICES", "void")))
    found = answers(
        attacker,
        {
            name: {"containers": containers, "runtimeClassName": "nvidia"}
            for name, containers in {
                "no GPU": [plain],
                "zero GPUs": [zero],
                "none beside one that asks": [plain, asking],
                "one that asks": [asking],
                "none of all devices beside one that asks": [pinned, asking],
            }.items()
        },
    )
    assert [name for name, said in found.items() if "(UncountedDevice)" in said] == [
        "no GPU",
        "zero GPUs",
        "none beside one that asks",
    ]
    assert {said for said in found.values() if "(UncountedDevice)" not in said} == {""}


def test_no_configmap_or_secret_sets_device_variables_by_envfrom(attacker):
    namespace = f"/api/v1/namespaces/{attacker.namespace}"

    def config(**data: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}

    def secret(**data: object) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c"}, **data}

    attempts = {
        "a variable": answer(attacker.api, f"{namespace}/configmaps", config(NVIDIA_VISIBLE_DEVICES="all")),
        "another vendor's": answer(attacker.api, f"{namespace}/configmaps", config(HABANA_VISIBLE_DEVICES="all")),
        "the rest after a prefix": answer(attacker.api, f"{namespace}/configmaps", config(VISIBLE_DEVICES="all")),
        "old images": answer(attacker.api, f"{namespace}/configmaps", config(CUDA_VERSION="9")),
        "a Secret": answer(attacker.api, f"{namespace}/secrets", secret(data={"NVIDIA_VISIBLE_DEVICES": "YWxs"})),
        "its text": answer(attacker.api, f"{namespace}/secrets", secret(stringData={"NVIDIA_VISIBLE_DEVICES": "all"})),
    }
    assert {name: said for name, said in attempts.items() if "(UncountedDevice)" not in said} == {}
    attacker.api.create(f"{namespace}/configmaps", config(CUDA_VISIBLE_DEVICES="0", mine="yes"))
    for data in ({"NVIDIA_VISIBLE_DEVICES": "all"}, {"CUDA_VERSION": "9"}):
        with pytest.raises(ApiError, match="UncountedDevice"):
            attacker.api.patch(f"{namespace}/configmaps/c", {"data": data}, content_type=MERGE_PATCH)
    attacker.api.patch(f"{namespace}/configmaps/c", {"data": {"mine": "no"}})


def test_changes_of_a_pod_reach_no_gpu_either(attacker):
    create_pod(attacker.cluster, attacker.namespace, pod("later", annotations={"devices.nri.io/pod": "admin's own"}))
    at = f"/api/v1/namespaces/{attacker.namespace}/pods/later"
    for annotation in ("nvidia.cdi.k8s.io/x", "hami.io/vgpu-devices-to-allocate", "devices.nri.io/pod"):
        with pytest.raises(ApiError, match="UncountedDevice"):
            attacker.api.patch(at, {"metadata": {"annotations": {annotation: "nvidia.com/gpu=all"}}})
    attacker.api.patch(at, {"metadata": {"annotations": {"mine": "yes"}}})
    attacker.api.patch(at, {"metadata": {"labels": {"mine": "yes"}}})
    attacker.cluster.kubectl(
        "create", "role", "debug", "--verb=*", "--resource=pods/ephemeralcontainers", "-n", attacker.namespace
    )
    attacker.cluster.kubectl(
        "create", "rolebinding", "debug", "--role=debug", f"--user={attacker.user}", "-n", attacker.namespace
    )
    for debugger in (main(**env(ALL)), main(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}})):
        added = {"spec": {"ephemeralContainers": [debugger | {"name": "debugger"}]}}
        with pytest.raises(ApiError, match="UncountedDevice"):
            attacker.api.patch(f"{at}/ephemeralcontainers", added, content_type=STRATEGIC_PATCH)


def test_a_scheduler_may_write_which_devices_it_chose(attacker):
    create_pod(attacker.cluster, attacker.namespace, pod("chosen"))
    cluster, user = attacker.cluster, "gpu-scheduler"
    cluster.kubectl("create", "clusterrole", user, "--verb=create,get,patch", "--resource=pods,pods/binding")
    cluster.kubectl("create", "clusterrolebinding", user, f"--clusterrole={user}", f"--user={user}")
    change = ("--as", user, "-n", attacker.namespace, "annotate", "pod", "chosen", "hami.io/bind-phase=success")
    cluster.kubectl(*change)
    stored = cluster.api.get(f"/api/v1/namespaces/{attacker.namespace}/pods/chosen")
    assert stored["metadata"]["annotations"]["hami.io/bind-phase"] == "success"


def test_no_volume_mounts_the_devices_of_a_node(attacker):
    cluster, user = attacker.cluster, "provisioner"
    cluster.kubectl("create", "clusterrole", user, "--verb=create", "--resource=persistentvolumes")
    cluster.kubectl("create", "clusterrolebinding", user, f"--clusterrole={user}", f"--user={user}")

    def volume(kind: str, path: str) -> dict[str, Any]:
        terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]}]}]
        spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], kind: {"path": path}}
        if kind == "local":
            spec |= {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
        return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": spec}

    def said(kind: str, path: str, who: str = user) -> str:
        api = cluster.acting_as(who) if who else cluster.api
        return answer(api, "/api/v1/persistentvolumes", volume(kind, path))

    bad = ("/dev", "/dev/", "/dev//nvidia0", "/./dev", "/proc/1/root/dev", "/run/containerd", "/", "//dev/dri")
    found = {(kind, path): said(kind, path) for kind in ("hostPath", "local") for path in bad}
    assert {key: message for key, message in found.items() if "(UncountedDevice)" not in message} == {}
    assert [said("local", path) for path in ("/mnt/disks/a", "/dev/sdb", "/opt/..data/x")] == [""] * 3
    assert said("hostPath", "/dev/nvidia0", who="") == "", "an admin of nodes may"


HONEST = {
    "no devices": container(**env(("NVIDIA_VISIBLE_DEVICES", "none"), ("HABANA_VISIBLE_DEVICES", ""))),
    "an old image that wants none": container(**env(("CUDA_VERSION", "9.0"), ("NVIDIA_VISIBLE_DEVICES", "void"))),
    "devices that a library chooses": container(**env(("CUDA_VISIBLE_DEVICES", "0"), ("ROCR_VISIBLE_DEVICES", "1"))),
    "variables from elsewhere": container(
        envFrom=[{"configMapRef": {"name": "c"}}, {"prefix": "APP_", "secretRef": {"name": "s"}}]
    ),
    "capabilities": security(capabilities={"add": ["IPC_LOCK", "NET_ADMIN"], "drop": ["ALL"]}),
    "a path that is allowed": node_path("/data", type="Directory"),
    "GPUs": container(**GPU),
    "annotations": {"annotations": {"hami.io/node-scheduler-policy": "binpack", "example.com/devices": "mine"}},
    "an unprivileged pod": security(privileged=False, procMount="Default", allowPrivilegeEscalation=False),
}


def test_honest_pods_are_left_alone(attacker):
    assert {name: said for name, said in answers(attacker, HONEST).items() if said} == {}


def test_a_pod_that_is_too_large_to_check_is_refused(attacker):
    """CEL would evaluate it for seconds, or exceed its cost limit."""
    found = answers(
        attacker,
        {
            "variables": container(env=[{"name": f"V{number}", "value": ""} for number in range(2_001)]),
            "annotations": {"annotations": {f"k{number}": "" for number in range(2_001)}},
            "capabilities": security(capabilities={"add": ["KILL"] * 2_001}),
            "mounts": container(volumeMounts=[{"name": "v", "mountPath": f"/{number}"} for number in range(2_001)])
            | {"volumes": [{"name": "v", "emptyDir": {}}]},
            "volumes": container() | {"volumes": [{"name": f"v{number}", "emptyDir": {}} for number in range(2_001)]},
            "variables of many containers": {
                "containers": [
                    main(env=[{"name": f"V{number}", "value": ""} for number in range(101)]) | {"name": f"c{each}"}
                    for each in range(20)
                ]
            },
            "containers": {"containers": [main() | {"name": f"c{number}"} for number in range(2_001)]},
        },
    )
    assert {name: said for name, said in found.items() if "more than 2,000" not in said} == {}
    data = {f"k{number}": "" for number in range(10_001)}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": data}
    said = answer(attacker.api, f"/api/v1/namespaces/{attacker.namespace}/configmaps", made)
    assert "more than 10,000" in said
