"""What Fairgate publishes: a namespace admin can neither read nor forge it, and a viewer can forge nothing."""

import pytest

from tests.attacks.attacker import make_attacker
from tests.control_plane.cleanup import REPORTS, TEAM_LEDGERS
from tests.control_plane.workbench import wait_for
from tests.scenarios.gate import gate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

KINDS = ("reports.fairgate.dev", "teamledgers.fairgate.dev")


def test_nobody_but_fairgate_says_what_is_in_force(cluster):
    with gate(cluster) as fairgate:
        attacker = make_attacker(cluster, fairgate.team_a, user=f"mallory-{fairgate.team_a}")
        wait_for(cluster, lambda: cluster.api.exists(f"{REPORTS}/policy"), what="the policy is published")

        def verbs(kind):
            return {
                verb
                for verb in ("get", "list", "create", "update", "patch", "delete")
                if attacker.kubectl("auth", "can-i", verb, kind).stdout.strip() == "yes"
            }

        assert [verbs(kind) for kind in KINDS] == [set(), set()]
        role = "--clusterrole=fairgate-viewer"
        cluster.kubectl("create", "clusterrolebinding", attacker.user, role, f"--user={attacker.user}")
        wait_for(cluster, lambda: [verbs(kind) for kind in KINDS] == [{"get", "list"}] * 2, what="a viewer")
        patched = attacker.kubectl("patch", "reports.fairgate.dev", "policy", "--type=merge", "-p", '{"policy": null}')
        assert "forbidden" in patched.stderr
        shown = attacker.kubectl("get", "reports.fairgate.dev,teamledgers.fairgate.dev", "-o", "json").stdout
        assert "PRIVATE KEY" not in shown
        assert cluster.api.get(f"{REPORTS}/replicas")["replicas"], "there is something to be seen"
        assert cluster.api.list(TEAM_LEDGERS) is not None
