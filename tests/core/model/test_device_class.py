"""Device classes: which of them may be GPUs, their resource names, and their order by age."""

import pytest

from webhook.core.model.gpu_shares import DeviceClass, age_order


@pytest.mark.parametrize(
    ("device_class", "driver", "want"),
    [
        pytest.param(DeviceClass("any", is_open=True), "", True, id="no driver is named"),
        pytest.param(DeviceClass("any", is_open=True), "gpu.nvidia.com", True, id="the claim names a GPU driver"),
        pytest.param(DeviceClass("any", is_open=True), "nic.example.com", False, id="the claim names another driver"),
        pytest.param(DeviceClass("nic"), "", False, id="the class names a driver"),
        pytest.param(
            DeviceClass("gpu", mentions_gpus=True, is_open=True), "", False, id="policy must weigh a class of GPUs"
        ),
    ],
)
def test_a_device_that_may_be_a_gpu_counts_as_one(device_class, driver, want):
    assert device_class.may_be_gpu(driver) is want


def test_every_class_has_a_resource_of_its_own():
    want = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
    assert DeviceClass("gpu.nvidia.com", extended_resource="nvidia.com/gpu").implicit_resource == want


def test_the_newest_class_is_last_and_equal_ages_go_by_name():
    old, b, a = (DeviceClass(name, made_at=f"202{year}") for name, year in (("z", 5), ("b", 6), ("a", 6)))
    assert sorted([b, a, old], key=age_order) == [old, a, b]
