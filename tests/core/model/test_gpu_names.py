"""What looks like a GPU: the resource names of vendors and schedulers, and no others."""

import pytest

from webhook.core.model.gpu_names import closest_name, looks_like_gpu

GPUS = [
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-9g.99gb",
    "nvidia.com/mig-1g.5gb.shared",
    "nvidia.com/gpumem",
    "aliyun.com/gpu-mem",
    "amd.com/gpu-core-pct",
    "habana.ai/gaudi",
    "google.com/tpu",
    "aws.amazon.com/neuroncore",
    "huawei.com/Ascend910B2-memory",
    "hygon.com/dcunum",
    "cambricon.com/vmlu",
    "metax-tech.com/sgpu",
    "kunlunxin.com/xpu",
    "enflame.com/gcu",
    "iluvatar.ai/BI-V150-vgpu",
    "volcano.sh/vgpu-memory",
    "koordinator.sh/gpu-core",
    "tencent.com/vcuda-core",
    "gpu.intel.com/i915",
    "example.com/NPU",
    "cambricon.com/mlu370",
    "nvidia.com/GA102GL_A10",
    "nvidia.com/TU104GL_TESLA_T4",
    "nvidia.com/GRID_T4-1Q",
    "nvidia.com/NVIDIA_A10-24Q",
    "nvidia.com/H100",
    "deviceclass.resource.kubernetes.io/mig.nvidia.com",
]
OTHERS = [
    "rdma/hca_shared_devices",
    "example.com/input",
    "vpc.amazonaws.com/pod-eni",
    "smarter-devices/fuse",
    "example.com/output-slots",
    "intel.com/qat",
    "openshift.io/sriov",
    "devices.kubevirt.io/kvm",
    "nvidia.com/priority",
    "nvidia.com/hostdev",
    "nvidia.com/resibs2f0",
    "nvidia.com/BF3",
    "nvidia.com/cx6dx_slnic_switchdev",
    "example.com/migration",
    "deviceclass.resource.kubernetes.io/compute-domain-daemon.nvidia.com",
]


@pytest.mark.parametrize("name", GPUS)
def test_names_of_gpus(name):
    assert looks_like_gpu(name)


@pytest.mark.parametrize("name", OTHERS)
def test_names_of_other_devices(name):
    assert not looks_like_gpu(name)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("nvidia.com/gpus", "nvidia.com/gpu"),
        ("nvidia.com/GPU", "nvidia.com/gpu"),
        ("nvida.com/gpu", "nvidia.com/gpu"),
        ("amd.com/gpu ", "amd.com/gpu"),
        ("nvidia.com/mig1g.5gb", "nvidia.com/mig-1g.5gb"),
        ("example.com/my-gpu-kind", None),
        ("gpu.intel.com/i915", None),
        ("nvidia.com/gpu" + "s" * 60, None),
    ],
)
def test_a_misspelled_name_is_recognized(name, want):
    assert closest_name(name, ("nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.5gb")) == want
