"""Reports: a namespace admin can neither read nor forge them, and a viewer cannot forge them."""

import pytest

from tests.attacks.attacker import make_attacker
from tests.control_plane.cleanup import REPORTS, TEAM_LEDGERS
from tests.control_plane.workbench import wait_for
from tests.scenarios.standing_fairgate import serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

KINDS = ("reports.fairgate.dev", "teamledgers.fairgate.dev")


def test_only_fairgate_writes_reports(cluster):
    with serve_fairgate(cluster) as fairgate:
        attacker = make_attacker(cluster, fairgate.team_a, user=f"mallory-{fairgate.team_a}")
        wait_for(cluster, lambda: cluster.api.exists(f"{REPORTS}/policy"), what="the policy is published")

        def may_read():
            return [attacker.kubectl("get", kind).returncode == 0 for kind in KINDS]

        def writes():
            new = {"apiVersion": "fairgate.dev/v1alpha1", "kind": "Report", "metadata": {"name": "mine"}}
            yield attacker.create(new)
            yield attacker.kubectl("delete", "reports.fairgate.dev", "policy")
            for kind, name in zip(KINDS, ("policy", "a"), strict=True):
                yield attacker.kubectl(
                    "patch", kind, name, "--type=merge", "-p", '{"metadata": {"labels": {"a": "b"}}}'
                )

        assert may_read() == [False, False]
        assert all("forbidden" in done.stderr for done in writes())
        role = "--clusterrole=fairgate-viewer"
        cluster.kubectl("create", "clusterrolebinding", attacker.user, role, f"--user={attacker.user}")
        wait_for(cluster, lambda: all(may_read()), what="a viewer")
        assert all("forbidden" in done.stderr for done in writes())
        shown = attacker.kubectl("get", "reports.fairgate.dev,teamledgers.fairgate.dev", "-o", "json").stdout
        assert "PRIVATE KEY" not in shown
        assert cluster.api.get(f"{REPORTS}/replicas")["replicas"], "there is a report to read"
        assert cluster.api.list(TEAM_LEDGERS) is not None
