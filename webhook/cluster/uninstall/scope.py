"""What an uninstallation is about: where to look, what to keep, how fast it writes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where Fairgate's processes are, and what stays.

    `namespace` is theirs, empty to look in all. `workload` names the Deployment or StatefulSet of the servers; empty:
    those with Fairgate's label. `certs_secret` is the Secret to remove from `secret_namespace`, empty for none.
    """

    namespace: str = ""
    workload: str = ""
    certs_secret: str = ""
    secret_namespace: str = ""
    keeps_line: bool = False
    keeps_definitions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tempo:
    """Bounds on requests, and times in seconds."""

    at_once: int = 16
    """Requests at a time: API Priority and Fairness gives a client that many without others noticing."""
    pods_per_second: float = 100.0
    """Pods let go, or relieved of a notice: kube-scheduler binds about as many."""
    settle_seconds: float = 2.0
    """After a webhook was deleted, each API server may call it until its own watch delivers that: some milliseconds.
    A leader notices within two seconds that it no longer leads."""
    lease_seconds: int = 30
    """How long no process leads after an uninstallation was killed; then the old ones continue."""
    poll_seconds: float = 0.5
    """Between two looks whether processes have stopped, or a definition is gone."""
    wait_seconds: float = 120.0
    """How long to wait for processes to stop: they drain, and kubelets allow a minute."""
