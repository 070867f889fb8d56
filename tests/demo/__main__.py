"""`make demo`: the three scenarios on a real control plane, each without and with Fairgate, and then a cluster to try.

`DEMO_PACE` is the seconds to look at each picture (3 on a terminal, else 0), `DEMO_KEEP=0` ends after the summary.
Ctrl-C or SIGTERM ends it at any time: all processes and files go with it.
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
from tests.demo.narration import WIDTH, Teller
from tests.demo.picture import legend
from tests.demo.scenario import Scenario
from tests.demo.stage import DEMO, TEAM_A, TEAM_B, Stage

ROOT = Path(__file__).parents[2]
SCENARIOS = (greedy_team.SCENARIO, fragmentation.SCENARIO, idle_share.SCENARIO)
ENDS = (signal.SIGINT, signal.SIGTERM)
FAILED = 1

INTRODUCTION = (
    "This is a real Kubernetes control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler. "
    "It has four nodes of ten GPUs. KWOK plays the nodes, so that no GPU is needed, and Fairgate's own containers run "
    "as processes of this machine. "
    "Two teams share the 40 GPUs. Each scenario is played without Fairgate, then with it."
)


def main() -> int:
    """Play it all and give the exit status."""
    for number in ENDS:
        signal.signal(number, _end)
    os.chdir(ROOT)  # the commands shown name files from here
    console = Console(width=min(WIDTH, Console().width) if sys.stdout.isatty() else WIDTH)
    teller = Teller(console, _pace_seconds())
    try:
        _play(teller)
    except (build.BuildError, ComponentError, AssertionError) as error:
        what, _, details = str(error).partition("\n")
        teller.list(f"\n{details}\n\nThe demo cannot go on: {what}")
        return FAILED
    except KeyboardInterrupt:
        teller.say("\nStopped. Nothing of it is left: no process, no file.")
    return 0


def _pace_seconds() -> float:
    text = os.environ.get("DEMO_PACE") or ("3" if sys.stdout.isatty() else "0")
    if not text.replace(".", "", 1).isdecimal():
        raise SystemExit(f"DEMO_PACE is a number of seconds, not {text}")
    return float(text)


def _end(_number: int, _frame: object) -> NoReturn:
    """End in good order; a second Ctrl-C must not cut that short."""
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _play(teller: Teller) -> None:
    teller.say("Fairgate demo: three scenarios, without and with Fairgate.")
    build.ensure((*CONTROL_PLANE, HELM), say=teller.say)
    teller.say("Starting the control plane ...")
    with ControlPlane() as cluster:
        stage = Stage(cluster, teller)
        stage.furnish()
        teller.say(INTRODUCTION)
        teller.say(legend(is_plain=teller.is_plain))
        fairgate = Fairgate.beside(stage)
        rows = [row for scenario in SCENARIOS for row in _twice(scenario, stage, fairgate)]
        teller.summary(rows)
        if os.environ.get("DEMO_KEEP") != "0":
            _invite(stage)
            signal.pause()


def _twice(scenario: Scenario, stage: Stage, fairgate: Fairgate) -> list[tuple[str, ...]]:
    """Play a scenario without and with Fairgate, and give the rows of the summary."""
    teller = stage.teller
    teller.chapter(scenario.title, scenario.story)
    teller.part("without Fairgate")
    before = scenario.without(stage)
    stage.clear()
    teller.part("with Fairgate")
    fairgate.install(scenario.policy)
    after = scenario.within(stage)
    if scenario is not SCENARIOS[-1]:
        stage.clear()
        fairgate.uninstall()
    return [(scenario.title, "", ""), *((f"  {asked}", before[asked], after[asked]) for asked in before)]


def _invite(stage: Stage) -> None:
    """Tell how to go on by oneself."""
    folders = (find_binaries()["kubectl"].parent, Path(sys.executable).parent)
    commands = {
        "kubectl get pods -A -o wide -L fairgate.dev/team,fairgate.dev/tier": "",
        f"kubectl fairgate status --policy {DEMO}/policies/{SCENARIOS[-1].policy}.yaml": "the picture, and more",
        f"kubectl create -n {TEAM_A} -f {DEMO}/pods/one.yaml": "refused: the 41st GPU of team A",
        f"kubectl create -n {TEAM_B} -f {DEMO}/pods/large.yaml": "takes 8 GPUs back",
        f"kubectl describe -n {TEAM_B} pod/large": "who went for it",
    }
    stage.teller.say(f"\nThe cluster stays up, with Fairgate, until Ctrl-C. In another terminal, in {ROOT}:\n")
    stage.teller.list(f"  export KUBECONFIG={stage.cluster.kubeconfig} PATH={':'.join(map(str, folders))}:$PATH")
    for command, what in commands.items():
        stage.teller.list(f"  {command}" + (f"  # {what}" if what else ""))


if __name__ == "__main__":
    sys.exit(main())
