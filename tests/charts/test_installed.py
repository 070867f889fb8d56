"""From nothing to a cluster with Fairgate and back, as a platform engineer goes, with the real helm."""

from __future__ import annotations

import pytest

from tests.charts.installed import installed
from tests.control_plane.workbench import make_namespace

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("helm_binary")]


def test_try(cluster, tmp_path):
    ns = make_namespace(cluster, "team-a")
    with installed(cluster) as fg:
        print(cluster.kubectl("get", "all,pdb,networkpolicy,cm,secret", "-n", "fairgate-system"))
        fg.wait_asked(ns)
        print(fg.get("/readyz"), fg.get_evictor("/readyz"))
        print(fg.upgrade("--set", "replicaCount=1"))
        fg.wait_asked(ns)
        print(fg.uninstall())
        print(cluster.kubectl("get", "all,pdb,networkpolicy,cm,secret,lease", "-n", "fairgate-system"))
        print(cluster.kubectl("get", "mutatingwebhookconfiguration,validatingwebhookconfiguration"))
