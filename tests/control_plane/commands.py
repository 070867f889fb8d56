"""The command line of each component: pure, with the reason for each flag that is not obvious."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.control_plane.minors import DEVICE_GATES, DEVICE_VERSIONS

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"
COMPONENTS = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK)  # in the order of their start

STAGES = Path(__file__).with_name("stages.yaml")

# The defaults (20 a second for the controller-manager) make 500 nodes wait half a minute for their taints to go.
FAST_CLIENT = ("--kube-api-qps=5000", "--kube-api-burst=5000")


@dataclass(frozen=True, slots=True)
class Ports:
    """Loopback ports of one control plane."""

    etcd: int
    etcd_peer: int
    api_server: int


def component_commands(
    binaries: Mapping[str, Path], *, folder: Path, ports: Ports, audit: bool
) -> dict[str, tuple[str | Path, ...]]:
    """The command line of every component, by name; the files named in it are in `folder` already."""
    pki = folder / "pki"
    kubeconfig = f"--kubeconfig={folder / 'kubeconfig'}"
    return {
        ETCD: (
            binaries[ETCD],
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{ports.etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{ports.etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{ports.etcd_peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{ports.etcd_peer}",
            f"--initial-cluster=default=http://127.0.0.1:{ports.etcd_peer}",
            "--unsafe-no-fsync",  # the data is thrown away anyway
        ),
        API_SERVER: (
            binaries[API_SERVER],
            f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={ports.api_server}",
            "--endpoint-reconciler-type=none",  # else a loopback address to advertise is refused
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--token-auth-file={pki / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki / 'service-accounts.key'}",
            f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--egress-selector-config-file={pki / 'egress.json'}",  # how Services are reached: see egress.py
            "--allow-privileged=true",
            *DEVICE_GATES,
            *DEVICE_VERSIONS,
            *((f"--audit-policy-file={pki / 'audit.json'}", f"--audit-log-path={audit_log(folder)}") if audit else ()),
        ),
        CONTROLLER_MANAGER: (
            binaries[CONTROLLER_MANAGER],
            kubeconfig,
            "--leader-elect=false",
            "--secure-port=0",
            "--use-service-account-credentials",  # requests of controllers come from their own users, as in real life
            f"--service-account-private-key-file={pki / 'service-accounts.key'}",
            f"--root-ca-file={pki / 'ca.crt'}",
            "--node-monitor-grace-period=10m",  # a starved KWOK must not make nodes NotReady in mid-test
            *FAST_CLIENT,
            *DEVICE_GATES,
        ),
        SCHEDULER: (
            binaries[SCHEDULER],
            kubeconfig,
            "--leader-elect=false",
            "--secure-port=0",
            *FAST_CLIENT,
            *DEVICE_GATES,
        ),
        KWOK: (
            binaries[KWOK],
            kubeconfig,
            f"--config={STAGES}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=400",  # real kubelets do not share the API server's cores to renew them
            "--cidr=10.0.0.1/12",  # addresses for a million pods
        ),
    }


def audit_log(folder: Path) -> Path:
    """The file that the API server's audit events are written to, one JSON object per line."""
    return folder / "logs" / "audit.jsonl"
