"""The fields of Kubernetes objects that Fairgate reads, as msgspec structs; the decoder skips all other fields.

Parts that the pods of one template share (selectors, affinity, tolerations, resources) stay raw JSON here, so that
constraints.py and demands.py can look them up by their bytes and parse each template once. A raw part is a view into
the request body: keep bytes(raw), never the Raw itself, after the request.

Names have the core's types from here on: calling a NewType costs 0.1 us each time.

gc=False: nothing here can form a cycle, and 50,000 pods must not slow down garbage collection.
"""

from typing import Final, TypeVar

import msgspec

from webhook.core.model import names
from webhook.core.model.pod import NO_UID
from webhook.kube.objects.quantity import Quantity

_T = TypeVar("_T")

ABSENT: Final = frozenset({b"", b"null"})
"""The bytes of a raw part that is absent."""
NOTHING: Final = msgspec.Raw()
"""A raw part that is absent."""


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """An owner of an object; `controller` marks the managing one."""

    kind: str
    name: str
    api_version: str = ""
    controller: bool | None = None
    uid: str = ""


class ObjectMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Metadata of any object."""

    name: str = ""
    generate_name: str = ""
    namespace: names.Namespace = names.Namespace("")
    uid: names.Uid = NO_UID
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class ContainerPort(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A container port; a host port allows a single pod per node."""

    host_port: int = 0
    protocol: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A container or init container."""

    name: str
    resources: msgspec.Raw = NOTHING
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None


class Present(msgspec.Struct, frozen=True, gc=False):
    """An object of which only the presence matters."""


class VolumeClaim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The claim of a volume."""

    claim_name: str = ""


class Volume(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A volume; those that may bind the pod to a zone or node are read."""

    persistent_volume_claim: VolumeClaim | None = None
    ephemeral: Present | None = None


class PodResourceClaim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """An entry of spec.resourceClaims: a claim's name, or the template that it is created from."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGate(msgspec.Struct, frozen=True, gc=False):
    """A gate that keeps a pod from kube-scheduler until its owner removes it."""

    name: str = ""


class SchedulingGroup(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The group that a pod is scheduled with."""

    pod_group_name: str | None = None


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A pod's spec."""

    containers: list[Container]
    init_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    node_name: names.NodeName = names.NodeName("")
    scheduler_name: str = ""
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    node_selector: msgspec.Raw = NOTHING
    affinity: msgspec.Raw = NOTHING
    tolerations: msgspec.Raw = NOTHING
    topology_spread_constraints: msgspec.Raw = NOTHING
    overhead: msgspec.Raw = NOTHING
    resources: msgspec.Raw = NOTHING
    resource_claims: list[PodResourceClaim] | None = None
    scheduling_group: SchedulingGroup | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None


class PodResourceClaimStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The claim that was created for an entry of spec.resourceClaims."""

    name: str
    resource_claim_name: str | None = None


class ContainerRun(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A run of a container, present or over."""

    started_at: str | None = None


class ContainerState(msgspec.Struct, frozen=True, gc=False):
    """Whether a container runs or has ended; neither while it waits."""

    running: ContainerRun | None = None
    terminated: ContainerRun | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The resources and the state of a container as its kubelet reports them."""

    name: str = ""
    allocated_resources: msgspec.Raw = NOTHING
    resources: msgspec.Raw = NOTHING
    restart_count: int = 0
    state: ContainerState | None = None


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A pod's status. `allocated_resources` and `resources` are of the whole pod."""

    phase: str = ""
    reason: str | None = None
    start_time: str | None = None
    nominated_node_name: str | None = None
    resource_claim_statuses: list[PodResourceClaimStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    conditions: msgspec.Raw = NOTHING
    allocated_resources: msgspec.Raw = NOTHING
    resources: msgspec.Raw = NOTHING


class Pod(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpec
    status: PodStatus | None = None
    api_version: str = ""
    kind: str = ""


class PodGates(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The scheduling gates of a pod's spec."""

    scheduling_gates: list[SchedulingGate] | None = None


class OldPod(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The metadata and gates of a pod: all that is read of the old object of an update."""

    metadata: ObjectMeta
    spec: PodGates = PodGates()


class Taint(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A node's taint."""

    key: str
    effect: str
    value: str | None = None


class NodeSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A node's spec."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeCondition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A node's condition."""

    type: str
    status: str


class NodeStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A node's status."""

    allocatable: dict[str, Quantity] | None = None
    capacity: dict[str, Quantity] | None = None
    conditions: list[NodeCondition] | None = None


class Node(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Namespace(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A namespace."""

    metadata: ObjectMeta


class PriorityClass(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A priority class."""

    metadata: ObjectMeta
    value: int
    preemption_policy: str | None = None


UNREADABLE: Final = (ValueError, TypeError, OverflowError, RecursionError)
"""What msgspec raises for values that are no such object: its own errors are ValueErrors, as those of encodings are."""


def describe(error: Exception, *, under: str = "") -> str:
    """Return a decoding error as path and problem: `spec.containers[0].name: expected str, got int`."""
    if isinstance(error, RecursionError):
        return f"{under}: nested too deeply".removeprefix(": ")
    what, _, path = str(error).partition(" - at `$")
    where = (under + path.rstrip("`")).replace("[...]", "[]").strip(".")
    what = what.replace("`", "")
    if what[1:2].islower():  # not "JSON is malformed"
        what = what[0].lower() + what[1:]
    return f"{where}: {what}" if where else what


def read_part(decoder: "msgspec.json.Decoder[_T]", raw: bytes, *, where: str) -> _T | None:
    """Decode a raw part; None if it is absent or null. Raises ValueError with the path `where` if it is malformed."""
    if not raw or raw == b"null":
        return None
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(describe(error, under=where)) from error
