"""Pods that access GPUs beyond their request, by method: fields of the spec, or annotations, for `objects.pod`."""

from __future__ import annotations

from typing import Any

from tests.control_plane.minors import at_least


def main(**fields: object) -> dict[str, Any]:
    return {"name": "main", "image": "example.invalid/x:1", **fields}


def container(**fields: object) -> dict[str, Any]:
    return {"containers": [main(**fields)]}


def env(*pairs: tuple[str, object]) -> dict[str, Any]:
    said = [
        {"name": name, "value": value} if isinstance(value, str) else {"name": name} | value for name, value in pairs
    ]
    return {"env": said}


def security(**fields: object) -> dict[str, Any]:
    return container(securityContext=fields)


def node_path(path: str, **more: object) -> dict[str, Any]:
    return container() | {"volumes": [{"name": "v", "hostPath": {"path": path, **more}}]}


def mounted(path: str) -> dict[str, Any]:
    return container(volumeMounts=[{"name": "v", "mountPath": path}]) | {"volumes": [{"name": "v", "emptyDir": {}}]}


def annotated(key: str) -> dict[str, Any]:
    return {"annotations": {key: "nvidia.com/gpu=all"}}


UNSEEN = {"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}
ALL = ("NVIDIA_VISIBLE_DEVICES", "all")
GPU = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}

REACHING = {
    "all devices by environment": container(**env(ALL)),
    "all devices and the GPU that was asked for": container(**env(ALL), **GPU),
    "a value that another follows": container(**env(("NVIDIA_VISIBLE_DEVICES", "void"), ALL)),
    "a value made of another": container(**env(("X", "all"), ("NVIDIA_VISIBLE_DEVICES", "$(X)"))),
    "a value that is not in the pod": container(**env(("NVIDIA_VISIBLE_DEVICES", UNSEEN))),
    "AMD's devices": container(**env(("AMD_VISIBLE_DEVICES", "0"))),
    "Habana's devices": container(**env(("HABANA_VISIBLE_DEVICES", "all"))),
    "Moore Threads' devices": container(**env(("MTHREADS_VISIBLE_DEVICES", "all"))),
    "Ascend's devices": container(**env(("ASCEND_VISIBLE_DEVICES", "0-7"))),
    "devices of a vendor that Fairgate does not know": container(**env(("ACME_VISIBLE_DEVICES", "all"))),
    "the variable of old CUDA images, which mean all": container(**env(("CUDA_VERSION", "9.0"))),
    "that variable from elsewhere": container(**env(("CUDA_VERSION", UNSEEN))),
    "an init container": container() | {"initContainers": [main(**env(ALL)) | {"name": "first"}]},
    "a prefix that makes a variable of a key": container(
        envFrom=[{"prefix": "NVIDIA_VISIBLE_", "configMapRef": {"name": "c"}}]
    ),
    "a prefix for a Secret": container(envFrom=[{"prefix": "CUDA_", "secretRef": {"name": "c", "optional": True}}]),
    "a mount": mounted("/var/run/nvidia-container-devices/all"),
    "a mount with two slashes": mounted("/var/run//nvidia-container-devices/all"),
    "a mount with a dot": mounted("/var/./run/x/../nvidia-container-devices/all"),
    "a relative mount": mounted("var/run/nvidia-container-devices/all"),
    "privilege": security(privileged=True),
    "privilege of an init container": container()
    | {"initContainers": [main(securityContext={"privileged": True}) | {"name": "first"}]},
    "all capabilities": security(capabilities={"add": ["ALL"]}),
    "a capability": security(capabilities={"add": ["SYS_ADMIN"]}),
    "a capability in small letters": security(capabilities={"add": ["sys_rawio"]}),
    "a capability with its prefix": security(capabilities={"add": ["CAP_SYS_ADMIN"]}),
    "the node's processes": container() | {"hostPID": True},
    "a Windows host process": container()
    | {"hostNetwork": True, "securityContext": {"windowsOptions": {"hostProcess": True, "runAsUserName": "x"}}},
    "a device of the node": node_path("/dev/nvidia0", type="CharDevice"),
    "the whole of /dev": node_path("/dev"),
    "the whole of /dev with a slash": node_path("/dev/"),
    "the whole of /dev with a dot": node_path("/./dev"),
    "the whole of the node": node_path("/"),
    "the node by its first process": node_path("/proc/1/root/dev"),
    "the container runtime": node_path("/run/containerd/containerd.sock", type="Socket"),
    "the device plugins' socket": node_path("/var/lib/kubelet/device-plugins"),
    "a link in a log folder": node_path("/var/log/link"),
    "a path below one that is allowed": node_path("/data/link"),
    "a path that is allowed, in other words": node_path("//data"),
    "the null device, which NVIDIA's runtime takes names from": node_path("/dev/null"),
    "CDI": annotated("cdi.k8s.io/x"),
    "CDI under NVIDIA's prefix": annotated("nvidia.cdi.k8s.io/x"),
    "a device injector": annotated("devices.nri.io/pod"),
    "a device injector for one container": annotated("devices.noderesource.dev/container.main"),
    "a device injector without a slash": annotated("devices.noderesource.dev"),
    "CDI by a device injector": annotated("cdi-devices.noderesource.dev/pod"),
    "GKE's device injector": annotated("devices.gke.io/container.main"),
    "CRI-O's devices": annotated("io.kubernetes.cri-o.Devices"),
    "a hypervisor's settings": annotated("io.katacontainers.config.hypervisor.kernel_params"),
    "devices that HAMi did not choose": annotated("hami.io/vgpu-devices-to-allocate"),
    "an allocation that HAMi did not make": annotated("hami.io/bind-phase"),
    "a device that gpushare did not choose": annotated("ALIYUN_COM_GPU_MEM_IDX"),
    "a device that Volcano did not choose": annotated("volcano.sh/vgpu-ids-new"),
    "a device that Koordinator did not choose": annotated("scheduling.koordinator.sh/device-allocated"),
}

if at_least("1.33"):  # before, the API server drops the field
    REACHING["all of /proc"] = security(procMount="Unmasked") | {"hostUsers": False}
