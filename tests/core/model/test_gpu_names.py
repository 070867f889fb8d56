"""What looks like a GPU: the resource names of vendors and schedulers, and no others."""

import pytest

from webhook.core.model.gpu_shares import closest_name, looks_like_gpu

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
    "nvidia.com/gtx-1080-ti",
    "nvidia.com/geforce-rtx-3090",
    "nvidia.com/TITAN_RTX",
    "nvidia.com/titan-x",
    "nvidia.com/K80",
    "nvidia.com/tesla-m60",
    "nvidia.com/GM204GL_TESLA_M60",
    "nvidia.com/NVS-810",
    "nvidia.com/whatever-comes-next",
    "example.com/geforce-gtx-1080",
    "amd.com/mi300x",
    "amd.com/cpx_nps4",
    "amd.com/spx_nps1",
    "graphcore.ai/ipu",
    "c600.graphcore.ai/ipu",
    "furiosa.ai/rngd",
    "furiosa.ai/warboy",
    "beta.furiosa.ai/npu",
    "rebellions.ai/ATOM",
    "tenstorrent.com/blackhole",
    "qualcomm.com/qaic",
    "kunlunxin.com/vxpu",
    "metax-tech.com/sgpu",
    "habana.ai/hpu",
    "deviceclass.resource.kubernetes.io/rngd.furiosa.ai",
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
    "nvidia.com/rdma_vf",
    "nvidia.com/rdma0",
    "nvidia.com/sriov-rdma-vf",
    "nvidia.com/sriov_resource_rail_0",
    "nvidia.com/mlnxnics",
    "nvidia.com/ib0",
    "nvidia.com/bf_sf_trusted",
    "nvidia.com/bf3_p0_sf1",
    "nvidia.com/resourceA",
    "nvidia.com/imex-channel",
    "amd.com/nic",
    "amd.com/vnic",
    "amd.com/xilinx_u250_gen3x16_xdma_shell_3_1-0",
    "amd.com/ama_u30",
    "metax-tech.com/vcore",
    "metax-tech.com/vmemory",
    "iluvatar.ai/BI-V150.vMem",
    "intel.com/intel_sriov_netdevice",
    "qat.intel.com/generic",
    "fpga.intel.com/af-ce4.d84.zkiWk5jwXOUbTYHCi",
    "huawei.com/sriov",
    "xilinx.com/fpga-xilinx_u200-0",
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
