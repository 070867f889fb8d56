"""Claims, their class, and a world in which they count."""

from dataclasses import replace

from tests.core.support import make
from webhook.core.admission.pools import resolve_demand
from webhook.core.devices.claim_users import ClaimKey, ClassCount, DeviceRequest
from webhook.core.devices.slices import ClassCondition, Slice, SliceDevice
from webhook.core.model.amounts import ONE_GPU, ResourceName
from webhook.core.model.demand import ClaimRef
from webhook.core.model.gpu_shares import DeviceClass
from webhook.policy.sections import BUILT_IN

GPU_CLASS = DeviceClass("gpu.nvidia.com", mentions_gpus=True)
MIG_CLASS = DeviceClass("mig", mentions_gpus=True)
SHARED, TEMPLATE = ClaimKey("claim", "team-a", "shared"), ClaimKey("template", "team-a", "made")
SHARING, MAKING = ClaimRef(claim="shared"), ClaimRef(template="made")


def spec(number, name="gpu.nvidia.com", **more):
    return (DeviceRequest((ClassCount(name, number),), **more),)


def bare(**more):
    return make.demand(0, **more)


def resident(uid, *claims, **more):
    return make.resident(uid=uid, demand=bare(), claims=claims, **more)


def world(teams=(), **more):
    made = make.world(make.policy(*teams, resources=BUILT_IN, **more))
    made.set_device_class(GPU_CLASS.name, GPU_CLASS)
    return made


def with_devices(number, *nodes):
    """A world in which these nodes offer so many devices of the class each."""
    made = world()
    for name in nodes or ("n0",):
        found = make.node(name, gpus=0)
        made.set_node(replace(found, allocatable={**found.allocatable, GPU_CLASS.implicit_resource: number}))
    return made


def partitioned():
    """A world with one GPU that is taken whole, or as two partitions: both take the counters that they share."""
    weights = {GPU_CLASS.implicit_resource: ONE_GPU, MIG_CLASS.implicit_resource: ONE_GPU // 2}
    made = make.world(make.policy(resources=weights), [make.node("n0")])
    memory = ResourceName("x counter memory")
    kinds = ((GPU_CLASS, 2), *[(MIG_CLASS, 1)] * 2)
    devices = tuple(SliceDevice("x", {"x/type": kind.name}, consumes=((memory, size),)) for kind, size in kinds)
    for kind in (GPU_CLASS, MIG_CLASS):
        made.set_device_class(kind.name, kind, ClassCondition("x/type", kind.name))
    made.set_slice("s", Slice("n0", "x/p", 1, devices, counters=((memory, 2),)))
    made.set_claim(SHARED, spec(1))
    return made


def charged(world_):
    return world_.usage("team-a").total / ONE_GPU


def resolve_for(place, *claims, **more):
    return resolve_demand(make.pod(demand=bare(**more), claims=claims), make.ALICE, place)
