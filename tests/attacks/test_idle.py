"""Attacks of a namespace admin who holds GPUs without using them."""

import pytest

from tests.attacks.attacker import make_attacker
from tests.control_plane.objects import pod
from tests.control_plane.prometheus import prometheus
from tests.control_plane.workbench import create_pod, make_nodes, wait_phase
from tests.scenarios.dcgm import exporting
from tests.scenarios.evictor import evictor
from tests.scenarios.standing_fairgate import serve_fairgate
from tests.scenarios.test_idle import SINCE, SIZE, idle, wait_idle

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("promtool")]


def test_own_metrics_of_the_same_name_and_an_own_mark_change_nothing(cluster):
    """The tenant exports full use of their own pod and none of another's, with the labels of the exporter."""
    make_nodes(cluster, 1)
    with exporting() as exporter, exporting() as forged:
        scrapes = [exporter.scrape(), forged.scrape("tenant") | {"honor_labels": True}]
        with (
            prometheus(cluster, scrapes) as running,
            serve_fairgate(cluster, policy=idle(running.url, "report")) as fairgate,
            evictor(fairgate),
        ):
            mine, theirs = fairgate.team_a, fairgate.team_b
            attacker = make_attacker(cluster, mine)
            attacker.create_pod(pod("lazy", gpus=1, **SIZE))
            create_pod(cluster, theirs, pod("victim", gpus=1, **SIZE))
            wait_phase(cluster, mine, "lazy", "Running")
            wait_phase(cluster, theirs, "victim", "Running")
            exporter.use(mine, "lazy", 0)
            exporter.use(theirs, "victim", 90)
            forged.use(mine, "lazy", 100)
            forged.use(theirs, "victim", 0)
            wait_idle(cluster, mine, "lazy")
            assert attacker.kubectl("annotate", "pod", "lazy", f"{SINCE}-").returncode != 0
            done = attacker.kubectl("annotate", "--overwrite", "pod", "lazy", f"{SINCE}=2999-01-01T00:00:00Z")
            assert "ProtectedKeyChanged" in done.stderr
            wait_idle(cluster, mine, "lazy")
            wait_idle(cluster, theirs, "victim", is_idle=False)
