"""GPU resources that a policy need not list: whole GPUs, and NVIDIA's MIG profiles by their compute slices.

Profiles: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html; the resource name writes
`+me` as `.me`. A profile counts its compute slices, or the larger of these and its memory slices, as the policy says.
If several GPUs have a profile of the same name, the last in the list counts: 1g.10gb is one of the eight memory slices
of 80 GB.
"""

from typing import Final

from webhook.core.model.amount import ONE_GPU
from webhook.core.model.demand import Weights
from webhook.core.model.names import DEVICE_CLASS, ResourceName
from webhook.core.model.policy import BUILT_IN_RESOURCES, MigWeight

# A name does not say which GPU it is of: 1g.24gb is 1/7 of an H100 NVL or GH200 and 1/4 of an RTX PRO 6000, whose
# admins override it in `resources`.
_SEVENTHS: Final = 7
_PROFILES: Final = (
    (7, "1g.5gb 1g.5gb.me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb"),  # A100 40 GB
    (7, "1g.10gb 1g.10gb.me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),  # A100, H100 80 GB
    (7, "1g.12gb 1g.12gb.me 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb"),  # H100 94 GB
    (7, "3g.48gb 4g.48gb 7g.96gb"),  # GH200, H20
    (7, "1g.18gb 1g.18gb.me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"),  # H200
    (7, "1g.23gb 1g.23gb.me 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb"),  # B200
    (7, "1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb"),  # GB200
    (7, "1g.34gb 1g.34gb.me 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb"),  # B300
    (4, "1g.6gb 1g.6gb.me 2g.12gb 2g.12gb.me 4g.24gb"),  # A30
    (4, "2g.48gb 4g.96gb"),  # RTX PRO 6000
)


_MEMORY_SLICES: Final = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
"""Memory slices (of 8) by compute slices (of 7); a GPU with four compute slices has four memory slices."""


def _mig(weighing: MigWeight) -> dict[ResourceName, int]:
    return {
        ResourceName(f"nvidia.com/mig-{profile}"): _weight(profile, slices, double, weighing)
        for slices, profiles in _PROFILES
        for double in [_double(profiles.split())]
        for profile in profiles.split()
    }


def _weight(profile: str, slices: int, double: str, weighing: MigWeight) -> int:
    compute = int(profile[0])
    weight = compute * ONE_GPU // slices
    if weighing is MigWeight.COMPUTE or slices != _SEVENTHS:
        return weight
    return max(weight, (2 if profile == double else _MEMORY_SLICES[compute]) * ONE_GPU // 8)


def _double(profiles: list[str]) -> str:
    """Return the profile of one compute slice with twice the memory; "" if a GPU has none."""
    sizes = {int(profile[3:-2]): profile for profile in profiles if profile[0] == "1" and profile.endswith("gb")}
    return sizes[max(sizes)] if len(sizes) > 1 else ""


_CLASSES: Final = ("gpu.nvidia.com", "vfio.gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com", "tpu.google.com")
"""DeviceClasses whose devices are whole GPUs. Those of MIG devices do not name a profile and have no weight."""

BUILT_IN: Final[Weights] = {
    **BUILT_IN_RESOURCES,
    **{ResourceName(DEVICE_CLASS + name): ONE_GPU for name in _CLASSES},
    **_mig(MigWeight.COMPUTE),
    # HAMi: hundredths of a device's memory and cores (see shares.py)
    ResourceName("nvidia.com/gpumem-percentage"): ONE_GPU // 100,
    ResourceName("nvidia.com/gpucores"): ONE_GPU // 100,
    # gpushare: the number of a node's devices; pods request, and are charged for, memory
    ResourceName("aliyun.com/gpu-count"): 0,
}
"""GPU units of one piece of each built-in resource; 0: not a GPU, although its name looks like one."""


def built_in(mig: MigWeight) -> Weights:
    """Return the weights of the built-in resources, with MIG profiles weighed as `mig` says."""
    return {**BUILT_IN, **_mig(mig)}
