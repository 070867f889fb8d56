"""`make demo`: the three scenarios on a real control plane, each without and with Fairgate, and then a cluster to try.

`DEMO_PACE` is the pause in seconds after each picture (3 on a terminal, otherwise 0). `DEMO_KEEP=1` leaves out the
comparison: it makes the cluster with Fairgate and pods in it. `DEMO_KEEP=0` ends after the summary. Ctrl-C or SIGTERM
ends it at any time, and removes all processes and files.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from tests.control_plane import build
from tests.control_plane.cluster import ControlPlane, find_binaries
from tests.control_plane.processes import ComponentError
from tests.control_plane.versions import CONTROL_PLANE, HELM
from tests.demo import fragmentation, greedy_team, idle_share
from tests.demo.fairgate import Fairgate
from tests.demo.narration import WIDTH, DemoOutput
from tests.demo.picture import legend
from tests.demo.scenario import Scenario
from tests.demo.stage import DEMO, TEAM_A, TEAM_B, DemoCluster

ROOT = Path(__file__).parents[2]
SCENARIOS = (greedy_team.SCENARIO, fragmentation.SCENARIO, idle_share.SCENARIO)
ENDS = (signal.SIGINT, signal.SIGTERM)
FAILED = 1

INTRODUCTION = (
    "This is a real Kubernetes control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler. "
    "It has four nodes of ten GPUs. KWOK simulates the nodes, so no GPU is needed, and Fairgate's containers run as "
    "processes on this machine. "
    "Two teams share the 40 GPUs. Each scenario runs without Fairgate, then with it."
)


def main() -> int:
    """Run the demo and return the exit status."""
    for number in ENDS:
        signal.signal(number, _end)
    os.chdir(ROOT)  # the commands shown name files from here
    console = Console(width=min(WIDTH, Console().width) if sys.stdout.isatty() else WIDTH)
    output = DemoOutput(console, _pace_seconds())
    try:
        _run(output)
    except (build.BuildError, ComponentError, AssertionError) as error:
        what, _, details = str(error).partition("\n")
        output.list(f"\n{details}\n\nThe demo failed: {what}")
        return FAILED
    except KeyboardInterrupt:
        output.say("\nStopped. All processes and files are removed.")
    return 0


def _pace_seconds() -> float:
    text = os.environ.get("DEMO_PACE") or ("3" if sys.stdout.isatty() else "0")
    if not text.replace(".", "", 1).isdecimal():
        raise SystemExit(f"DEMO_PACE must be a number of seconds, got {text}")
    return float(text)


def _end(_number: int, _frame: object) -> NoReturn:
    """Stop with cleanup, which a second Ctrl-C must not interrupt."""
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _run(output: DemoOutput) -> None:
    output.say("Fairgate demo: three scenarios, without and with Fairgate.")
    build.ensure((*CONTROL_PLANE, HELM), say=output.say)
    output.say("Starting the control plane ...")
    with ControlPlane() as cluster:
        demo = DemoCluster(cluster, output)
        demo.create_nodes()
        output.say(INTRODUCTION)
        output.say(legend(is_plain=output.is_plain))
        fairgate = Fairgate.prepare(demo)
        if os.environ.get("DEMO_KEEP") == "1":
            fairgate.install(SCENARIOS[-1].policy)
            SCENARIOS[-1].within(demo)
        else:
            output.summary([row for scenario in SCENARIOS for row in _run_scenario(scenario, demo, fairgate)])
        if os.environ.get("DEMO_KEEP") != "0":
            _print_next_steps(demo)
            signal.pause()


def _run_scenario(scenario: Scenario, demo: DemoCluster, fairgate: Fairgate) -> list[tuple[str, ...]]:
    """Run a scenario without and with Fairgate, and return the rows of the summary."""
    output = demo.output
    output.chapter(scenario.title, scenario.story)
    output.part("without Fairgate")
    before = scenario.without(demo)
    demo.clear()
    output.part("with Fairgate")
    fairgate.install(scenario.policy)
    after = scenario.within(demo)
    if scenario is not SCENARIOS[-1]:
        demo.clear()
        fairgate.uninstall()
    return [(scenario.title, "", ""), *((f"  {fact}", before[fact], after[fact]) for fact in before)]


def _print_next_steps(demo: DemoCluster) -> None:
    """Print commands to try."""
    folders = (find_binaries()["kubectl"].parent, Path(sys.executable).parent)
    commands = {
        "kubectl get pods -A -o wide -L fairgate.dev/team,fairgate.dev/tier": "",
        f"kubectl fairgate status --policy {DEMO}/policies/{SCENARIOS[-1].policy}.yaml": "the picture, and more",
        f"kubectl create -n {TEAM_A} -f {DEMO}/pods/one.yaml": "refused: the 41st GPU of team A",
        f"kubectl create -n {TEAM_B} -f {DEMO}/pods/large.yaml": "reclaims 8 GPUs",
        f"kubectl describe -n {TEAM_B} pod/large": "which pods were evicted for it",
    }
    demo.output.say(f"\nThe cluster stays up with Fairgate until Ctrl-C. In another terminal, in {ROOT}:\n")
    demo.output.list(f"  export KUBECONFIG={demo.cluster.kubeconfig} PATH={':'.join(map(str, folders))}:$PATH")
    for command, what in commands.items():
        demo.output.list(f"  {command}" + (f"  # {what}" if what else ""))


if __name__ == "__main__":
    sys.exit(main())
