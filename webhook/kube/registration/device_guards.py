"""GPUs that a pod reaches without asking for them, as far as that shows: guards of pods, and of what they read.

Where Kubernetes leaves room for many spellings, what is allowed is listed, not what is forbidden. CEL reads only the
object at hand, so the names of ConfigMaps' and Secrets' keys are guarded where they are written: `envFrom` makes them
names of environment variables. What an image says is not in the pod, and no guard sees it (docs/security.md).
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from webhook.core.model.gpu_names import PATTERN
from webhook.core.model.policy import Policy
from webhook.core.model.reason import Code
from webhook.kube.registration.admission_policy import EXEMPT_LABEL, admission_policy, core_rule, is_not_exempt
from webhook.kube.registration.registration import namespace_selector, quoted

DEVICES: Final = "fairgate-devices"
SOURCES: Final = "fairgate-devices-env"
VOLUMES: Final = "fairgate-devices-volumes"

_RUNTIME_VARIABLES: Final = "VISIBLE_DEVICES"
"""How the variables end by which container runtimes choose devices: each vendor puts its own name before it."""
_PROCESS_VARIABLES: Final = tuple(
    f"{library}_{_RUNTIME_VARIABLES}"
    for library in ("ASCEND_RT", "CUDA", "GPU", "HIP", "MLU", "MUSA", "ROCR", "TOPS", "TPU", "XPU")
)
"""Those that libraries read inside the container: they choose among the devices that are there."""
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
"""NVIDIA's runtime takes a container with this variable, and without the one above, for an image that means all."""
_NO_DEVICES: Final = '["", "none", "void"]'
_MOUNTS: Final = "nvidia-container-devices"
"""NVIDIA's runtime takes names of devices from mounts below /var/run/nvidia-container-devices, in any spelling."""

_CAPABILITIES: Final = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE", "MKNOD"),
    *("NET_ADMIN", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID"),
    *("SYS_CHROOT", "SYS_NICE", "SYS_PTRACE", "SYS_RESOURCE"),
)
"""Those of the Pod Security Standard `baseline`, and what RDMA, profilers and meshes need: none opens a device."""

_ANNOTATIONS: Final = (
    r"^((.*\.)?cdi\.k8s\.io/"  # CDI, also under the prefix that NVIDIA's operator sets
    r"|((cdi-)?devices|cdi|mounts)\.[a-z0-9.-]+(/|$)"  # NRI's device injectors, GKE's, CRI-O's
    r"|io\.kubernetes\.cri-o\.Devices|io\.katacontainers\.config\.|dev\.gvisor\."
    # what schedulers of shared GPUs hand to their device plugins
    r"|hami\.io/(bind-|vgpu-|.*-devices-)|volcano\.sh/(bind-|devices-|gpu-index|predicate-|vgpu-(ids|node|time))"
    r"|ALIYUN_COM_GPU_MEM_|scheduling\.koordinator\.sh/device-allocated|tencent\.com/(gpu-assigned|predicate-))"
)
_RUNTIME_CLASSES: Final = "(?i)(nvidia|gpu|rocm|amd|habana|gaudi|ascend|mthreads|cambricon|neuron)"

# A path of hostPath and local volumes: no empty, `.` or `..` part, and nothing through which devices are reached.
_STRAIGHT_PATH: Final = r"^(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+/?$"
_NODE_PATHS: Final = r"^/+(proc|sys|run|var/+run|dev/*$|dev/+(accel|davinci|dri|hl|kfd|mt|neuron|nvidia|vfio))"

_MOST: Final = 2_000
"""Of each kind of item in a pod. CEL would look at 30,000 variables for seconds; real pods have some dozens."""
_MOST_KEYS: Final = 10_000
"""Of a ConfigMap or Secret."""

_Json = dict[str, Any]


def device_guards(policy: Policy) -> list[_Json]:
    """Make the guards of pods, of what their environment comes from, and of the volumes that lead to nodes."""
    return [_pods(policy), _sources(policy), _volumes()]


def _pods(policy: Policy) -> _Json:
    """Refuse pods that reach devices past their resources, from the start or by what is added later."""
    made = admission_policy(
        DEVICES,
        rules=[core_rule(["pods"], "CREATE", "UPDATE"), core_rule(["pods/ephemeralcontainers"], "UPDATE")],
        conditions={"is-not-exempt": is_not_exempt(policy), "adds-something": _ADDS_SOMETHING},
        validations=[
            _validation(
                f"the pod has more than {_MOST:,} containers, volumes, annotations, variables, mounts or capabilities: "
                "what they reach cannot be checked",
                "variables.isLarge",
            ),
            *(
                _validation(
                    f"{found}: it may reach GPUs that the pod does not ask for; {remedy}",
                    f"!variables.isLarge && {broken}",
                )
                for found, broken, remedy in _ways_to_devices()
            ),
        ],
    )
    made["spec"]["matchConstraints"]["namespaceSelector"] = namespace_selector(policy)
    made["spec"]["variables"] = [
        {"name": name, "expression": expression}
        for name, expression in {**_VARIABLES, "hostPaths": json.dumps(policy.defaults.host_paths)}.items()
    ]
    return made


def _sources(policy: Policy) -> _Json:
    """Refuse keys of ConfigMaps and Secrets that `envFrom` would make variables of container runtimes."""
    names = f"k.endsWith({quoted(_RUNTIME_VARIABLES)}) && !(k in {json.dumps(_PROCESS_VARIABLES)})"
    kept = "oldObject != null && has(oldObject.data) && k in oldObject.data && oldObject.data[k] == object.data[k]"
    made = admission_policy(
        SOURCES,
        rules=[core_rule(["configmaps", "secrets"], "CREATE", "UPDATE")],
        conditions={"is-not-exempt": is_not_exempt(policy), "has-data": "has(object.data)"},
        validations=[
            _validation(
                f"a key ends with {_RUNTIME_VARIABLES} or is {_LEGACY}, or there are more than {_MOST_KEYS:,}: envFrom "
                "would let pods reach GPUs that they do not ask for; name the key otherwise",
                f"object.data.size() > {_MOST_KEYS} || "
                f"object.data.exists(k, (({names}) || k == {quoted(_LEGACY)}) && !({kept}))",
            )
        ],
    )
    made["spec"]["matchConstraints"]["namespaceSelector"] = namespace_selector(policy)
    return made


def _volumes() -> _Json:
    """Refuse PersistentVolumes that lead to a node's devices but from those who may patch nodes.

    Tenants make none, but provisioners make them for tenants, some at paths that the claim has a say in.
    """
    sources = ", ".join(f"(has(object.spec.{kind}) ? object.spec.{kind}.path : '')" for kind in ("hostPath", "local"))
    found = (
        f'[{sources}].exists(p, p != "" && (!p.matches({quoted(_STRAIGHT_PATH)}) || p.matches({quoted(_NODE_PATHS)})))'
    )
    return admission_policy(
        VOLUMES,
        rules=[core_rule(["persistentvolumes"], "CREATE", scope="Cluster")],
        conditions={"leads-to-a-node": "has(object.spec.hostPath) || has(object.spec.local)"},
        validations=[
            {
                "expression": f'authorizer.group("").resource("nodes").check("patch").allowed() || !({found})',
                "message": "the volume's path leads to devices of the node, or is not written straight: give a path "
                f"without . and .., and outside /dev, /proc, /sys and /run ({Code.UNCOUNTED_DEVICE})",
            }
        ],
    )


def _validation(found: str, broken: str) -> _Json:
    return {"expression": f"{EXEMPT_LABEL} || !({broken})", "message": f"{found} ({Code.UNCOUNTED_DEVICE})"}


def _has(path: str) -> str:
    """Write in CEL: this field of a container is there, and all above it."""
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
        f"variables.containers.size() > {_MOST}",
        f"(has(object.spec.volumes) && object.spec.volumes.size() > {_MOST})",
        f"(has(object.metadata.annotations) && object.metadata.annotations.size() > {_MOST})",
        *(f"variables.containers.map(c, {_has(each)} ? {each}.size() : 0).sum() > {_MOST}" for each in _LISTS),
    )
)
_VARIABLES: Final = {
    "containers": _NEW_CONTAINERS,
    "isLarge": _LARGE,
    # In every namespace: schedulers and their extenders; device plugins. An expression affords two such questions.
    "schedules": _MAY.format("pods", "binding", "create"),
    "keepsNodes": f"{_MAY.format('nodes', '', 'patch')} || {_MAY.format('nodes', 'status', 'patch')}",
}

_ASK: Final = "ask for GPUs by resources"


def _ways_to_devices() -> Iterable[tuple[str, str, str]]:
    """List in words and in CEL how a pod reaches devices past its resources, and what to do about it."""
    for found, broken, remedy in _WAYS_OF_CONTAINERS:
        yield f"a container {found}", f"variables.containers.exists(c, {broken})", remedy
    for found, broken, remedy in _WAYS_OF_PODS:
        yield found, f"{_IS_NEW} && {broken}", remedy
    looks = f"k.matches({quoted(_ANNOTATIONS)})"
    yield (
        "an annotation names devices to a container runtime or a device plugin",
        f"{_CHANGED_ANNOTATION.format(looks=looks)} && !variables.schedules && !variables.keepsNodes",
        _ASK,
    )


_CHOOSES: Final = f"(has(e.valueFrom) || (has(e.value) && !(e.value in {_NO_DEVICES})))"
_PINNED: Final = f"(has(c.env) && c.env.exists(e, e.name == {quoted(_PIN)}))"
_PREFIXED: Final = json.dumps([*(f"{vendor}_{_RUNTIME_VARIABLES}" for vendor in _VENDORS), _LEGACY])

_WAYS_OF_CONTAINERS: Final = (
    (
        f"sets a variable that ends with {_RUNTIME_VARIABLES}",
        f"has(c.env) && c.env.exists(e, e.name.endsWith({quoted(_RUNTIME_VARIABLES)}) && "
        f"!(e.name in {json.dumps(_PROCESS_VARIABLES)}) && {_CHOOSES})",
        f"{_ASK}, or set it to void",
    ),
    (
        f"sets {_LEGACY}",
        f"has(c.env) && c.env.exists(e, e.name == {quoted(_LEGACY)} && "
        f'(has(e.valueFrom) || (has(e.value) && e.value != ""))) && !{_PINNED}',
        f"set {_PIN} to void as well, or name it otherwise",
    ),
    (
        f"has an envFrom whose prefix begins such a name as {_PIN}",
        f'has(c.envFrom) && c.envFrom.exists(f, has(f.prefix) && f.prefix != "" && '
        f"{_PREFIXED}.exists(n, n.startsWith(f.prefix)))",
        "take another prefix",
    ),
    (
        f"mounts something at a path with {_MOUNTS}",
        f"has(c.volumeMounts) && c.volumeMounts.exists(m, m.mountPath.contains({quoted(_MOUNTS)}))",
        f"{_ASK}",
    ),
    (
        "is privileged, or has more of the node than other containers have",
        "has(c.securityContext) && ((has(c.securityContext.privileged) && c.securityContext.privileged) || "
        '(has(c.securityContext.procMount) && c.securityContext.procMount != "Default") || '
        "(has(c.securityContext.windowsOptions) && has(c.securityContext.windowsOptions.hostProcess) && "
        "c.securityContext.windowsOptions.hostProcess))",
        f"{_ASK}, and drop privileged, procMount and hostProcess",
    ),
    (
        "adds a capability that opens devices",
        f"{_has('c.securityContext.capabilities.add')} && "
        f"c.securityContext.capabilities.add.exists(a, !(a in {json.dumps(_CAPABILITIES)}))",
        f"add none but {', '.join(_CAPABILITIES)}",
    ),
)
_ASKS_FOR_DEVICES: Final = (
    "(has(c.resources) && ((has(c.resources.claims) && c.resources.claims.size() > 0) || (has(c.resources.limits) && "
    f'c.resources.limits.exists(k, k.matches({quoted(PATTERN)}) && !(string(c.resources.limits[k]) in ["0"])))))'
)
_WAYS_OF_PODS: Final = (
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
        "the RuntimeClass gives GPUs to images that want them, and a container asks for none",
        f"has(object.spec.runtimeClassName) && object.spec.runtimeClassName.matches({quoted(_RUNTIME_CLASSES)}) && "
        f"!variables.containers.all(c, {_ASKS_FOR_DEVICES} || {_PINNED})",
        f"set {_PIN} to void in each container that asks for no GPU, or drop runtimeClassName",
    ),
)
