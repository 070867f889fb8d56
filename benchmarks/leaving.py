"""Leaving with queued pods: how long until none of them has a gate, on a real control plane.

`uninstall`  `fairgate uninstall` after the servers crashed, as fast as it may and at its usual 100 pods in a second;
`kubectl`    the block of docs/tasks/runbooks.md, after the same crash;
`shadow`     the policy set to `enforce: shadow` while the server runs, as before a downgrade.
Prints a Markdown table of seconds until the last gate is gone: of `fairgate uninstall` those until its line "line". Run
it from the repository's root: `python benchmarks/leaving.py`.

"""

import argparse
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Final

from tests.control_plane import build
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.versions import CONTROL_PLANE
from tests.control_plane.workbench import make_nodes, wait_for
from tests.scenarios.evictor import fill
from tests.scenarios.serving import FAIRGATE, ROOT, write_policy
from tests.scenarios.standing_fairgate import FairgateServer, serve_fairgate
from tests.scenarios.test_emergency import QUEUES, as_written, line_up
from tests.scenarios.uninstalling import gated

NODES: Final = 4


def uninstalled(fairgate: FairgateServer, *, pods_per_second: int) -> float:
    """Return the seconds until `fairgate uninstall` says that the queue is let go."""
    fairgate.stop(signal.SIGKILL)
    options = ("--kubeconfig", fairgate.cluster.kubeconfig, "--pods-per-second", str(pods_per_second))
    began = time.monotonic()
    command = [*FAIRGATE, "uninstall", *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        seconds = next(time.monotonic() - began for line in process.stdout if line.startswith("line "))
        process.communicate()
    return seconds


def by_kubectl(fairgate: FairgateServer) -> float:
    """Return the seconds that the runbook's block takes."""
    fairgate.stop(signal.SIGKILL)
    began = time.monotonic()
    as_written(fairgate.cluster)
    return time.monotonic() - began


def by_shadow(fairgate: FairgateServer) -> float:
    """Return the seconds from the edit of the policy until no pod has a gate."""
    text = (fairgate.policy / "teams.yaml").read_text()
    began = time.monotonic()
    write_policy(fairgate.policy, text + "enforce: shadow\n")
    wait_for(fairgate.cluster, lambda: not gated(fairgate.cluster, fairgate.team_a), what="no gate", timeout=600)
    return time.monotonic() - began


WAYS: Final[dict[str, Callable[[FairgateServer], float]]] = {
    "uninstall": lambda fairgate: uninstalled(fairgate, pods_per_second=100),
    "uninstall, 1,000 pods in a second": lambda fairgate: uninstalled(fairgate, pods_per_second=1000),
    "kubectl": by_kubectl,
    "shadow": by_shadow,
}


def main() -> None:
    """Measure each way on a control plane of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1000, help="queued pods")
    pods = parser.parse_args().pods
    build.ensure(CONTROL_PLANE)
    print(f"| way | seconds until none of {pods:,} pods has a gate |\n|---|---|")
    for name, way in WAYS.items():
        with ControlPlane() as cluster:
            make_nodes(cluster, NODES)
            with serve_fairgate(cluster, policy=QUEUES, is_own=True) as fairgate:
                fill(cluster, fairgate.team_a, 2, gpus=10)
                line_up(fairgate, pods)
                assert len(gated(cluster)) == pods
                seconds = way(fairgate)
                assert not gated(cluster)
        print(f"| {name} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
