"""DeviceClasses: the kinds of device that claims ask for, and the names that each of them has."""

from typing import NamedTuple

from webhook.core.model.gpu_names import looks_like_gpu
from webhook.core.model.names import DEVICE_CLASS, ResourceName


class DeviceClass(NamedTuple):
    """A kind of device. `mentions_gpus`: its name, its resource's or its selectors look like GPUs.

    `is_open`: its selectors do not say whose devices it selects, so a claim of its may pick GPUs.
    """

    name: str
    extended_resource: ResourceName | None = None
    made_at: str = ""
    mentions_gpus: bool = False
    is_open: bool = False

    def may_be_gpu(self, driver: str) -> bool:
        """Tell whether a device of this class that policy does not weigh has to be taken for a GPU.

        It does unless the class or the claim says whose it is: what may be a GPU is one until it is shown otherwise.
        """
        return self.is_open and not self.mentions_gpus and (not driver or looks_like_gpu(driver))

    @property
    def implicit_resource(self) -> ResourceName:
        """Name the extended resource that every class has."""
        return ResourceName(DEVICE_CLASS + self.name)


def age_order(device_class: DeviceClass) -> tuple[str, str]:
    """Order classes by age, the newest last."""
    return device_class.made_at, device_class.name
