"""DeviceClasses: the device types that claims request, and the resource names of each."""

from typing import NamedTuple

from webhook.core.model.gpu_names import looks_like_gpu
from webhook.core.model.names import DEVICE_CLASS, ResourceName


class DeviceClass(NamedTuple):
    """A device type. `mentions_gpus`: its name, its resource or its selectors look like GPUs.

    `is_open`: its selectors do not name a driver, so a claim of this class may select GPUs.
    """

    name: str
    extended_resource: ResourceName | None = None
    made_at: str = ""
    mentions_gpus: bool = False
    is_open: bool = False

    def may_be_gpu(self, driver: str) -> bool:
        """Whether a device of this class that policy does not weigh counts as a GPU.

        It does unless the class or the claim names another driver: a device that may be a GPU counts as one until
        proven otherwise.
        """
        return self.is_open and not self.mentions_gpus and (not driver or looks_like_gpu(driver))

    @property
    def implicit_resource(self) -> ResourceName:
        """Return the extended resource that every class has."""
        return ResourceName(DEVICE_CLASS + self.name)


def age_order(device_class: DeviceClass) -> tuple[str, str]:
    """Sort key of classes by age, the newest last."""
    return device_class.made_at, device_class.name
