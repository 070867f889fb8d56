"""Guards against pods that use GPUs without requesting them: policies on pods and on the objects that pods refer to.

Where a field has many spellings, the allowed values are listed, not the forbidden ones. CEL reads only the object
under review, so keys of ConfigMaps and Secrets are checked when those are written: `envFrom` turns them into names of
environment variables. Settings inside an image are not in the pod, so no guard sees them (docs/concepts/security.md).
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from webhook.core.model.policy import Policy
from webhook.core.model.reasons import Code
from webhook.kube.registration.admission_policy import EXEMPT_LABEL, admission_policy, core_rule
from webhook.kube.registration.registration import gpu_name_expression, quoted

DEVICES: Final = "fairgate-devices"
SOURCES: Final = "fairgate-devices-env"
VOLUMES: Final = "fairgate-devices-volumes"

_RUNTIME_VARIABLES: Final = "VISIBLE_DEVICES"
"""Suffix of the variables by which container runtimes select devices: each vendor puts its own name before it."""
_PROCESS_VARIABLES: Final = tuple(
    f"{library}_{_RUNTIME_VARIABLES}"
    for library in ("ASCEND_RT", "CUDA", "GPU", "HIP", "MLU", "MUSA", "ROCR", "TOPS", "TPU", "XPU")
)
"""Variables that libraries read inside the container: they only select among the container's devices."""
_VENDORS: Final = (
    "AMD",
    "ASCEND",
    "AWS_NEURON",
    "CAMBRICON",
    "HABANA",
    "ILUVATAR_COREX",
    "METAX",
    "MTHREADS",
    "NVIDIA",
)
_PIN: Final = f"NVIDIA_{_RUNTIME_VARIABLES}"
_LEGACY: Final = "CUDA_VERSION"
"""With this variable and without the one above, NVIDIA's runtime gives a container all devices."""
_NO_DEVICES: Final = '["", "none", "void"]'
_MOUNTS: Final = "nvidia-container-devices"
"""NVIDIA's runtime reads device names from mounts below /var/run/nvidia-container-devices, in any spelling."""

_CAPABILITIES: Final = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE", "MKNOD"),
    *("NET_ADMIN", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID"),
    *("SYS_CHROOT", "SYS_NICE", "SYS_PTRACE", "SYS_RESOURCE"),
)
"""Those of the Pod Security Standard `baseline`, and those for RDMA, profilers and meshes: none gives device access."""

_ANNOTATIONS: Final = (
    r"^((.*\.)?cdi\.k8s\.io/"  # CDI, also under the prefix that NVIDIA's operator sets
    r"|((cdi-)?devices|cdi|mounts)\.[a-z0-9.-]+(/|$)"  # NRI's device injectors, GKE's, CRI-O's
    r"|io\.kubernetes\.cri-o\.Devices|io\.katacontainers\.config\.|dev\.gvisor\."
    # what schedulers of shared GPUs pass to their device plugins
    r"|hami\.io/(bind-|vgpu-|.*-devices-)|volcano\.sh/(bind-|devices-|gpu-index|predicate-|vgpu-(ids|node|time))"
    r"|ALIYUN_COM_GPU_MEM_|scheduling\.koordinator\.sh/device-allocated|tencent\.com/(gpu-assigned|predicate-))"
)
_RUNTIME_CLASSES: Final = "(?i)(nvidia|gpu|rocm|amd|habana|gaudi|ascend|mthreads|cambricon|neuron)"

# A path of hostPath and local volumes: no empty, `.` or `..` part, and no directory that gives access to devices.
_CANONICAL_PATH: Final = r"^(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+/?$"
_NODE_PATHS: Final = r"^/+(proc|sys|run|var/+run|dev/*$|dev/+(accel|davinci|dri|hl|kfd|mt|neuron|nvidia|vfio))"

_MAX_ITEMS: Final = 2_000
"""Of each kind of item in a pod. CEL takes seconds for 30,000 variables; real pods have some dozens."""
_MAX_KEYS: Final = 10_000
"""Keys of a ConfigMap or Secret."""

_Json = dict[str, Any]


def device_guards(policy: Policy) -> list[_Json]:
    """Return the guards of pods, of the sources of their environment, and of volumes on nodes."""
    return [_pods(policy), _sources(policy), _volumes()]


def _pods(policy: Policy) -> _Json:
    """Refuse pods with access to devices beyond their resources, on creation or by a later change."""
    guard = admission_policy(
        DEVICES,
        of=policy,
        rules=[core_rule(["pods"], "CREATE", "UPDATE"), core_rule(["pods/ephemeralcontainers"], "UPDATE")],
        conditions={"adds-something": _ADDS_SOMETHING},
        validations=[
            _validation(
                f"the pod has more than {_MAX_ITEMS:,} containers, volumes, annotations, variables, mounts or "
                "capabilities: their access to devices cannot be checked",
                "variables.isLarge",
            ),
            *(
                _validation(
                    f"{found}: it may use GPUs that the pod does not request; {remedy}",
                    f"!variables.isLarge && {broken}",
                )
                for found, broken, remedy in _violations()
            ),
        ],
    )
    guard["spec"]["variables"] = [
        {"name": name, "expression": expression}
        for name, expression in {**_VARIABLES, "hostPaths": json.dumps(policy.defaults.host_paths)}.items()
    ]
    return guard


def _sources(policy: Policy) -> _Json:
    """Refuse keys of ConfigMaps and Secrets that `envFrom` would turn into variables of container runtimes."""
    names = f"k.endsWith({quoted(_RUNTIME_VARIABLES)}) && !(k in {json.dumps(_PROCESS_VARIABLES)})"
    kept = "oldObject != null && has(oldObject.data) && k in oldObject.data && oldObject.data[k] == object.data[k]"
    return admission_policy(
        SOURCES,
        of=policy,
        rules=[core_rule(["configmaps", "secrets"], "CREATE", "UPDATE")],
        conditions={"has-data": "has(object.data)"},
        validations=[
            _validation(
                f"a key ends with {_RUNTIME_VARIABLES} or is {_LEGACY}, or there are more than {_MAX_KEYS:,}: envFrom "
                "would let pods use GPUs that they do not request; rename the key",
                f"object.data.size() > {_MAX_KEYS} || "
                f"object.data.exists(k, (({names}) || k == {quoted(_LEGACY)}) && !({kept}))",
            )
        ],
    )


def _volumes() -> _Json:
    """Refuse PersistentVolumes with access to a node's devices, unless the user may patch nodes.

    Tenants cannot create volumes, but provisioners create them for tenants, some at paths that the claim influences.
    """
    sources = ", ".join(f"(has(object.spec.{kind}) ? object.spec.{kind}.path : '')" for kind in ("hostPath", "local"))
    found = (
        f'[{sources}].exists(p, p != "" && (!p.matches({quoted(_CANONICAL_PATH)}) || p.matches({quoted(_NODE_PATHS)})))'
    )
    return admission_policy(
        VOLUMES,
        rules=[core_rule(["persistentvolumes"], "CREATE", scope="Cluster")],
        conditions={"leads-to-a-node": "has(object.spec.hostPath) || has(object.spec.local)"},
        validations=[
            {
                "expression": f'authorizer.group("").resource("nodes").check("patch").allowed() || !({found})',
                "message": "the volume's path gives access to devices of the node, or is not canonical: use a path "
                f"without . and .., and outside /dev, /proc, /sys and /run ({Code.UNCOUNTED_DEVICE})",
            }
        ],
    )


def _validation(found: str, broken: str) -> _Json:
    # what holds for nearly all pods first: the rest is not evaluated then
    return {"expression": f"!({broken}) || {EXEMPT_LABEL}", "message": f"{found} ({Code.UNCOUNTED_DEVICE})"}


def _has(path: str) -> str:
    """Return a CEL expression: this field of a container and all its parents are set."""
    parts = path.split(".")
    return " && ".join(f"has({'.'.join(parts[:end])})" for end in range(2, len(parts) + 1))


_IS_NEW: Final = 'request.operation == "CREATE"'
_CHANGED_ANNOTATION: Final = (
    "has(object.metadata.annotations) && object.metadata.annotations.exists(k, {looks} && !(oldObject != null && "
    "has(oldObject.metadata.annotations) && k in oldObject.metadata.annotations && "
    "oldObject.metadata.annotations[k] == object.metadata.annotations[k]))"
)
_IS_DEBUGGER: Final = '(has(request.subResource) && request.subResource == "ephemeralcontainers")'
_ADDS_SOMETHING: Final = f"{_IS_NEW} || {_IS_DEBUGGER} || ({_CHANGED_ANNOTATION.format(looks='true')})"
_NEW_CONTAINERS: Final = (
    f"({_IS_NEW} ? object.spec.containers : []) + "
    f"({_IS_NEW} && has(object.spec.initContainers) ? object.spec.initContainers : []) + "
    "(has(object.spec.ephemeralContainers) ? object.spec.ephemeralContainers.filter(c, oldObject == null || "
    "!has(oldObject.spec.ephemeralContainers) || !oldObject.spec.ephemeralContainers.exists(o, o.name == c.name)) : [])"
)
_MAY: Final = 'authorizer.group("").resource("{}").subresource("{}").check("{}").allowed()'
_LISTS: Final = ("c.env", "c.envFrom", "c.volumeMounts", "c.securityContext.capabilities.add")
_LARGE: Final = " || ".join(
    (
        f"variables.containers.size() > {_MAX_ITEMS}",
        f"(has(object.spec.volumes) && object.spec.volumes.size() > {_MAX_ITEMS})",
        f"(has(object.metadata.annotations) && object.metadata.annotations.size() > {_MAX_ITEMS})",
        *(f"variables.containers.map(c, {_has(each)} ? {each}.size() : 0).sum() > {_MAX_ITEMS}" for each in _LISTS),
    )
)
_VARIABLES: Final = {
    "containers": _NEW_CONTAINERS,
    "isLarge": _LARGE,
    # In every namespace: schedulers and their extenders; device plugins. CEL's cost limit allows two such checks.
    "schedules": _MAY.format("pods", "binding", "create"),
    "keepsNodes": f"{_MAY.format('nodes', '', 'patch')} || {_MAY.format('nodes', 'status', 'patch')}",
}

_REQUEST_GPUS: Final = "request GPUs as resources"


def _violations() -> Iterable[tuple[str, str, str]]:
    """Yield each way to use devices beyond a pod's resources: what was found, its CEL expression, and the remedy."""
    for found, broken, remedy in _CONTAINER_VIOLATIONS:
        yield f"a container {found}", f"variables.containers.exists(c, {broken})", remedy
    for found, broken, remedy in _POD_VIOLATIONS:
        yield found, f"{_IS_NEW} && {broken}", remedy
    looks = f"k.matches({quoted(_ANNOTATIONS)})"
    yield (
        "an annotation names devices to a container runtime or a device plugin",
        f"{_CHANGED_ANNOTATION.format(looks=looks)} && !variables.schedules && !variables.keepsNodes",
        _REQUEST_GPUS,
    )


_CHOOSES: Final = f"(has(e.valueFrom) || (has(e.value) && !(e.value in {_NO_DEVICES})))"
_PINNED: Final = f"(has(c.env) && c.env.exists(e, e.name == {quoted(_PIN)}))"
_PREFIXED: Final = json.dumps([*(f"{vendor}_{_RUNTIME_VARIABLES}" for vendor in _VENDORS), _LEGACY])

_CONTAINER_VIOLATIONS: Final = (
    (
        f"sets a variable that ends with {_RUNTIME_VARIABLES}",
        f"has(c.env) && c.env.exists(e, e.name.endsWith({quoted(_RUNTIME_VARIABLES)}) && "
        f"!(e.name in {json.dumps(_PROCESS_VARIABLES)}) && {_CHOOSES})",
        f"{_REQUEST_GPUS}, or set it to void",
    ),
    (
        f"sets {_LEGACY}",
        f"has(c.env) && c.env.exists(e, e.name == {quoted(_LEGACY)} && "
        f'(has(e.valueFrom) || (has(e.value) && e.value != ""))) && !{_PINNED}',
        f"set {_PIN} to void as well, or rename the variable",
    ),
    (
        f"has an envFrom whose prefix begins such a name as {_PIN}",
        f'has(c.envFrom) && c.envFrom.exists(f, has(f.prefix) && f.prefix != "" && '
        f"{_PREFIXED}.exists(n, n.startsWith(f.prefix)))",
        "use another prefix",
    ),
    (
        f"has a mount at a path with {_MOUNTS}",
        f"has(c.volumeMounts) && c.volumeMounts.exists(m, m.mountPath.contains({quoted(_MOUNTS)}))",
        f"{_REQUEST_GPUS}",
    ),
    (
        "is privileged, or has a procMount or hostProcess with access to the node",
        "has(c.securityContext) && ((has(c.securityContext.privileged) && c.securityContext.privileged) || "
        '(has(c.securityContext.procMount) && c.securityContext.procMount != "Default") || '
        "(has(c.securityContext.windowsOptions) && has(c.securityContext.windowsOptions.hostProcess) && "
        "c.securityContext.windowsOptions.hostProcess))",
        f"{_REQUEST_GPUS}, and drop privileged, procMount and hostProcess",
    ),
    (
        "adds a capability that gives access to devices",
        f"{_has('c.securityContext.capabilities.add')} && "
        f"c.securityContext.capabilities.add.exists(a, !(a in {json.dumps(_CAPABILITIES)}))",
        f"add none but {', '.join(_CAPABILITIES)}",
    ),
)
_ASKS_FOR_DEVICES: Final = (
    "(has(c.resources) && ((has(c.resources.claims) && c.resources.claims.size() > 0) || (has(c.resources.limits) && "
    f'c.resources.limits.exists(k, {gpu_name_expression()} && !(string(c.resources.limits[k]) in ["0"])))))'
)
_POD_VIOLATIONS: Final = (
    (
        "a volume is a path of the node",
        "has(object.spec.volumes) && object.spec.volumes.exists(v, has(v.hostPath) && "
        "!(v.hostPath.path in variables.hostPaths))",
        "use a claim, or have the admin list the path, exactly as it is written, in defaults.hostPaths",
    ),
    (
        "the pod shares the node's processes, or is a HostProcess pod",
        "((has(object.spec.hostPID) && object.spec.hostPID) || (has(object.spec.securityContext) && "
        "has(object.spec.securityContext.windowsOptions) && "
        "has(object.spec.securityContext.windowsOptions.hostProcess) && "
        "object.spec.securityContext.windowsOptions.hostProcess))",
        "drop hostPID and hostProcess",
    ),
    (
        "the RuntimeClass gives GPUs to images that are configured for them, and a container requests none",
        f"has(object.spec.runtimeClassName) && object.spec.runtimeClassName.matches({quoted(_RUNTIME_CLASSES)}) && "
        f"!variables.containers.all(c, {_ASKS_FOR_DEVICES} || {_PINNED})",
        f"set {_PIN} to void in each container that requests no GPU, or drop runtimeClassName",
    ),
)
