"""`kubectl fairgate`: the real kubectl finds the plugin, and it shows the state of the cluster."""

import json
import signal
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from textwrap import dedent

import pytest

from tests.control_plane.objects import job, pod
from tests.control_plane.workbench import create_pod, make_nodes, wait_for, wait_phase
from tests.popen import killed_on_failure
from tests.scenarios.standing_fairgate import ROOT, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "6", "memory": "48Gi"}


@pytest.fixture
def plugins(tmp_path):
    """A folder with the scripts that an installation would make."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    made = EntryPoint("kubectl-fairgate", scripts["kubectl-fairgate"], "console_scripts")
    script = tmp_path / made.name
    script.write_text(
        dedent(f"""\
        #!{sys.executable}
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        from {made.module} import {made.attr}
        sys.exit({made.attr}())
        """)
    )
    script.chmod(0o755)
    return tmp_path


def watch_until_deleted(fairgate, plugins, team):
    """Watch the status while a pod that waits is deleted; Ctrl-C ends it normally."""
    command = [plugins / "kubectl-fairgate", "status", "--policy", fairgate.policy]
    options = ["--kubeconfig", fairgate.cluster.kubeconfig, "--watch", "--interval", "0.2", "-o", "json"]
    with killed_on_failure(subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)) as watching:
        lines = iter(watching.stdout.readline, "")
        assert next(line for line in lines if '"waiting": "8"' in line)
        fairgate.cluster.kubectl("delete", "pod", "wide", "-n", team, "--wait=false")
        assert next(line for line in lines if '"used": "16"' in line)
        watching.send_signal(signal.SIGINT)
        assert all(lines), "it continues until the signal"
        assert watching.wait(90) == 130


@pytest.mark.promise
def test_kubectl_shows_explains_and_saves_the_cluster(cluster, plugins):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, limit_a=24) as fairgate:
        team = fairgate.team_a
        cluster.kubectl.apply([job("train", pods=2, gpus=8, **SIZE)], "-n", team)
        wait_for(cluster, lambda: fairgate.charged("a") == 16, what="16 GPUs charged")
        create_pod(cluster, team, pod("wide", gpus=8, **SIZE))
        wait_for(cluster, lambda: fairgate.charged("a") == 24, what="24 GPUs charged")

        def kubectl(*words):
            name, *rest = words
            return cluster.kubectl.plugin("fairgate", name, "--policy", fairgate.policy, *rest, folder=plugins)

        def status(*words):
            notes = json.loads(kubectl("status", "-o", "json", *words).stdout)
            return {team["name"]: team for team in notes["teams"]}["a"], notes

        wait_for(cluster, lambda: all(len(node["gpus"][0]["devices"]) for node in status()[1]["nodes"]), what="nodes")
        mine, notes = status()
        assert (mine["used"], mine["preemptible"], mine["waiting"]) == ("24", "8", "8")
        assert [node["gpus"][0]["used"] for node in notes["nodes"]] == [8, 8]
        assert (notes["free"][0]["free"], notes["free"][0]["largestPod"], notes["free"][0]["atOnce"]) == (4, 2, 2)
        picture = kubectl("status").stdout
        assert "AAAAAAAA··  8/10" in picture

        explained = kubectl("explain", "pod/wide", "-n", team)
        assert explained.returncode == 1
        assert "Admitted as preemptible (Borrows)" in explained.stdout
        assert "by the present policy" in explained.stdout
        assert "nvidia.com/gpu 2 would run now" in explained.stdout

        watch_until_deleted(fairgate, plugins, team)
        create_pod(cluster, team, pod("wide", gpus=8, **SIZE))

        assert kubectl("bypassed").stdout == "no pod bypassed Fairgate\n"
        own = json.loads(kubectl("status", "-o", "json", "-n", team).stdout)
        assert [each["name"] for each in own["teams"]] == ["a"]

        saved = plugins / "world.yaml"
        saved.write_text(kubectl("world").stdout)
        assert status("--world", saved)[1] == status()[1]
        named = kubectl("world", "--pseudonyms").stdout
        assert "wide" not in named

        changed = plugins / "new.yaml"
        changed.write_text((fairgate.policy / "teams.yaml").read_text().replace('"limit": 24', '"limit": 20'))
        difference = cluster.kubectl.plugin("fairgate", "policy", "diff", fairgate.policy, changed, folder=plugins)
        assert difference.returncode == 1
        assert f"{team}/wide" in difference.stdout
        assert "1 refused if created again" in difference.stdout
        checked = cluster.kubectl.plugin("fairgate", "policy", "check", changed, "--cluster", folder=plugins)
        assert "cannot be met: all nodes together have 20 GPUs" not in checked.stdout
        assert "all teams together are guaranteed 40 GPUs, but the nodes have 20" in checked.stdout
        usage = kubectl("status", "--help").stdout
        assert usage.startswith("Usage: kubectl fairgate status")
        wait_phase(cluster, team, "wide", "Pending")
