"""With the rights of the chart the leader puts back what an admin removed or weakened."""

from __future__ import annotations

import pytest

from tests.charts.installed import installed
from tests.control_plane.kubectl import manifest
from tests.control_plane.objects import pod
from tests.control_plane.workbench import make_namespace, make_nodes, wait_for
from webhook.kube.registration.static_files import REGISTERED_GUARDS, WEBHOOKS

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("helm_binary")]

POLICY = """\
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: a, namespaces: [MINE], gpus: {guaranteed: 4, limit: 8}}
"""
RESTORES = "replicaCount=1,rbac.restoreWebhooks=true"


def test_a_leader_of_the_chart_creates_webhooks_again_and_turns_guards_from_audit_to_deny(cluster, tmp_path):
    mine, policy = make_namespace(cluster), tmp_path / "policy.yaml"
    policy.write_text(POLICY.replace("MINE", mine))
    make_nodes(cluster, 1)
    with installed(cluster, "--set-file", f"policy={policy}", "--set", RESTORES) as release:
        release.wait_asked(mine)
        release.wait_closed()
        bindings = [each for each in REGISTERED_GUARDS if "Binding" in each.kind and cluster.api.exists(each.path)]
        denying = [each for each in bindings if "Deny" in cluster.api.get(each.path)["spec"]["validationActions"]]
        assert denying
        before = {each.path: cluster.api.get(each.path)["webhooks"] for each in WEBHOOKS}
        for each in denying:
            cluster.api.patch(each.path, {"spec": {"validationActions": ["Audit"]}})
        for each in WEBHOOKS:
            cluster.api.delete(each.path)

        def are_back() -> bool:
            return all(cluster.api.exists(each.path) for each in WEBHOOKS)

        def are_denying() -> bool:
            return all("Deny" in cluster.api.get(each.path)["spec"]["validationActions"] for each in denying)

        def is_refused() -> bool:
            words = ("apply", "--dry-run=server", "-n", mine, "-f", "-")
            return "TeamLimitExceeded" in cluster.kubectl.run(*words, stdin=manifest(pod("big", gpus=9))).stderr

        wait_for(cluster, are_denying, what="the guards deny again", timeout=60)
        wait_for(cluster, are_back, what="the leader creates the webhook configurations again", timeout=60)
        wait_for(cluster, is_refused, what="the limit holds again", timeout=60)
        release.wait_closed()
        assert {each.path: cluster.api.get(each.path)["webhooks"] for each in WEBHOOKS} == before
        assert release.metric("fairgate_registration_in_step") == 1
