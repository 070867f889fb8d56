"""`make demo`: the three scenarios on a real control plane, each without and with Fairgate, and then a cluster to try.

`DEMO_PACE` is the seconds to look at each picture (3 on a terminal, else 0), `DEMO_KEEP=0` ends after the summary. Ctrl-C
or SIGTERM ends it at any time: all processes and files go with it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from rich.console import Console

from tests.control_plane import build
from tests.control_plane.cluster import ControlPlane, find_binaries
from tests.control_plane.processes import ComponentError
from tests.control_plane.versions import CONTROL_PLANE
from tests.demo import fragmentation, greedy_team, idle_share
from tests.demo.fairgate import POLICIES, Fairgate
from tests.demo.picture import legend
from tests.demo.scenario import Scenario
from tests.demo.stage import PODS, TEAM_A, TEAM_B, Stage
from tests.demo.teller import WIDTH, Teller

ROOT = Path(__file__).parents[2]
SCENARIOS = (greedy_team.SCENARIO, fragmentation.SCENARIO, idle_share.SCENARIO)
FAILED, INTERRUPTED = 1, 130

INTRODUCTION = (
    "This is a real Kubernetes control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler. "
    "It has four nodes of ten GPUs. KWOK plays the nodes, so that no GPU is needed; all else is real. "
    "Two teams share the 40 GPUs. Each scenario is played without Fairgate, then with it."
)


def main() -> int:
    """Play it all and give the exit status."""
    # Both, so that a demo in the background, where shells have SIGINT ignored, can be ended too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    os.chdir(ROOT)  # the commands shown name files from here
    console = Console(width=min(WIDTH, Console().width) if sys.stdout.isatty() else WIDTH)
    pace = float(os.environ.get("DEMO_PACE") or (3 if sys.stdout.isatty() else 0))
    teller = Teller(console, pace)
    try:
        _play(teller)
    except (build.BuildError, ComponentError, AssertionError) as error:
        teller.say(f"\n{error}\n\nThe demo could not go on: {str(error).splitlines()[0]}")
        return FAILED
    except KeyboardInterrupt:
        teller.say("\nStopped: the cluster, its processes and its files are gone.")
        return 0
    return 0


def _play(teller: Teller) -> None:
    teller.say("Fairgate demo: three scenarios, without and with Fairgate.")
    build.ensure(CONTROL_PLANE, say=teller.say)
    teller.say("Starting the control plane …")
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
        fairgate.remove()
    return [(scenario.title if not n else "", q, before[q], after[q]) for n, q in enumerate(before)]


def _invite(stage: Stage) -> None:
    """Tell how to go on by oneself."""
    kubectl = find_binaries()["kubectl"].parent
    policy = POLICIES / SCENARIOS[-1].policy
    stage.teller.say(f"""
The cluster stays up, with Fairgate, until Ctrl-C. In another terminal, in {ROOT}:

  export KUBECONFIG={stage.cluster.kubeconfig}
  export PATH={kubectl}:{Path(sys.executable).parent}:$PATH

  kubectl get pods -A -L fairgate.dev/team,fairgate.dev/tier -o wide
  kubectl fairgate status --policy {policy} --watch
  kubectl create -n {TEAM_B} -f {PODS}/large.yaml      # takes 8 GPUs back
  kubectl describe pod large -n {TEAM_B}                     # tells how
  kubectl create -n {TEAM_A} -f {PODS}/one.yaml        # over the limit
""")


if __name__ == "__main__":
    sys.exit(main())
