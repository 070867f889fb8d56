"""`fairgate uninstall`: nothing is stuck, at no moment, wherever it is killed; and nothing comes back."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest

from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, make_nodes, wait_bound, wait_for
from tests.scenarios.evictor import ask, evictor, fill, held_nodes
from tests.scenarios.serving import FAIRGATE, ROOT
from tests.scenarios.standing_fairgate import serve_fairgate
from tests.scenarios.uninstalling import (
    GATED,
    NOTICE,
    asking,
    gated,
    leave_traces,
    left,
    patched,
    register,
    report_of,
    uninstall,
)
from webhook.cluster.api.client import ApiConnection, connect
from webhook.cluster.uninstall import Scope, Step, Uninstallation
from webhook.kube.registration.static_files import DEFINITIONS, REGISTERED_GUARDS, WEBHOOKS, leases

pytestmark = pytest.mark.cluster

QUEUES = "defaults: {onLimit: queue, onNoRoom: queue}\nreclaim: {notice: 5m, minimumRuntime: 0s}\n"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
QUICK = Scope(settle_seconds=0.02, poll_seconds=0.05)


@pytest.mark.promise
def test_pods_in_line_and_held_nodes_are_let_go_while_gpu_pods_are_created_and_processes_run(cluster):
    """The processes run outside of the cluster: the first run names them, the second goes on once they are stopped."""
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, limit_a=40, policy=QUEUES, is_own=True) as fairgate, evictor(fairgate) as running:
        mine, theirs = fairgate.team_a, fairgate.team_b
        fill(cluster, mine, 36)
        for number in range(8):
            create_pod(cluster, mine, pod(f"waits-{number}", gpus=2, cpu="1", memory="4Gi"))
        ask(cluster, theirs, "wants-its-share", gpus=8)
        wait_for(cluster, lambda: held_nodes(cluster), what="a node is held")
        noticed = [
            each["metadata"]["name"]
            for each in wait_for(
                cluster,
                lambda: [
                    each
                    for each in cluster.api.list(f"/api/v1/namespaces/{mine}/pods")
                    if NOTICE in each["metadata"]["annotations"]
                ],
                what="evictions are announced",
            )
        ]
        assert len(gated(cluster)) >= 6
        with asking(cluster, theirs) as answers:
            first = uninstall(cluster, "--wait-seconds=0", "-o", "json")
        assert not any(answers)
        assert len(answers) > 20
        assert first.exit_code == 1
        report = report_of(first)
        assert "still running: evictor " in report["problem"]
        assert "waiting until these stop; those outside of the cluster you stop: evictor " in first.stderr
        assert [step["step"] for step in report["steps"]] == [
            "webhooks",
            "leaders",
            "guards",
            "line",
            "holds",
            "notices",
        ]
        assert not gated(cluster)
        assert not held_nodes(cluster)
        # both are still alive, and do not lead while the Leases of the uninstallation last
        assert cluster.api.exists(leases("default")[1].path)
        assert not running.said("evicted")
        running.stop()
        fairgate.stop()
        second = uninstall(cluster, "-o", "json")
        assert second.exit_code == 0, second.output
        assert report_of(second)["complete"]
        assert not list(left(cluster))
        assert [get_pod(cluster, mine, name)["metadata"]["name"] for name in noticed] == noticed
        third = report_of(uninstall(cluster, "-o", "json"))
        assert (third["complete"], third["steps"]) == (True, [])


# A run that is killed closes no transport of a request that it had begun.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_killed_after_every_single_change_it_goes_on_where_it_was(cluster, namespace, tmp_path):
    [node] = make_nodes(cluster, 1)
    leave_traces(cluster, namespace, tmp_path, node=node)
    runs = 0
    while not asyncio.run(_ends_before(cluster, change=1)):
        _in_order(cluster)
        runs += 1
    assert runs > 35, "every change was the last one of a run"
    assert not list(left(cluster))
    wait_bound(cluster, namespace, "waits-0")
    assert "fairgate.dev/waiting" not in get_pod(cluster, namespace, "waits-0")["metadata"].get("annotations", {})


def _in_order(cluster):
    """Whatever is gone, nothing is stuck without it."""
    exist = cluster.api.exists
    has_webhooks = any(exist(each.path) for each in WEBHOOKS)
    if exist(WEBHOOKS[0].path):
        assert exist(WEBHOOKS[1].path), "pods that are validated and not mutated are refused"
    if has_webhooks:
        assert all(exist(each.path) for each in REGISTERED_GUARDS), "the line is still guarded"
    if not all(exist(each.path) for each in DEFINITIONS):
        assert not has_webhooks, "servers are not ready without a definition"
        assert not gated(cluster), "no process serves the line any more"
    if not all(exist(each.path) for each in leases("default")):
        assert not any(exist(each.path) for each in DEFINITIONS)


async def _ends_before(cluster, *, change):
    """Run an uninstallation that is killed right after so many changes; returns whether it came to its end."""
    async with await connect(cluster.kubeconfig) as connection:
        killed = _Killed(connection, change)
        removal = Uninstallation(killed, QUICK, report=lambda _: None, waits=lambda _: None)
        work = asyncio.create_task(removal.run())
        death = asyncio.create_task(killed.is_dead.wait())
        await asyncio.wait((work, death), return_when=asyncio.FIRST_COMPLETED)
        is_over = work.done()
        for task in (work, death):
            task.cancel()
        await asyncio.gather(work, death, return_exceptions=True)
        if is_over:
            work.result()
        return is_over


class _Killed:
    """A connection of a process that is killed right after a change of the cluster: nothing follows it.

    That the Leases are held is none: nothing is different afterwards.
    """

    def __init__(self, connection: ApiConnection, changes: int) -> None:
        self.is_dead = asyncio.Event()
        self._connection = connection
        self._left = changes

    def __getattr__(self, name):
        return getattr(self._connection, name)

    async def send(self, method, path, body=None, **more):
        if self.is_dead.is_set():
            await asyncio.Event().wait()
        found = await self._connection.send(method, path, body, **more)
        if method != "GET" and not (method == "PATCH" and "/leases/" in path):
            self._left -= 1
            if self._left == 0:
                self.is_dead.set()
                await asyncio.Event().wait()
        return found


def test_a_dry_run_shows_everything_in_order_and_changes_nothing(cluster, namespace, tmp_path):
    [node] = make_nodes(cluster, 1)
    leave_traces(cluster, namespace, tmp_path, node=node)
    before = sorted(left(cluster))
    shown = uninstall(cluster, "--dry-run", "-o", "json")
    assert shown.exit_code == 0
    report = report_of(shown)
    assert [step["step"] for step in report["steps"]] == list(Step)
    planned = {step["step"]: step["objects"] for step in report["steps"]}
    assert planned["webhooks"] == [
        "ValidatingWebhookConfiguration fairgate",
        "MutatingWebhookConfiguration zz-fairgate",
    ]
    assert planned["line"] == [f"Pod {namespace}/waits-{number}" for number in range(3)]
    assert planned["holds"] == [f"Node {node}", "HeldNodes fairgate"]
    assert planned["leases"] == ["Lease default/fairgate", "Lease default/fairgate-evictor"]
    assert {step["state"] for step in report["steps"]} == {"planned"}
    table = uninstall(cluster, "--dry-run").stdout
    assert f"line         planned Pod {namespace}/waits-0, " in table
    assert "let go, the oldest of each namespace first" in table
    assert "nothing was changed; left on purpose:" in table
    assert sorted(left(cluster)) == before


def test_a_missing_right_is_named_and_no_pod_is_left_without_a_process_that_serves_it(cluster, namespace, tmp_path):
    """Without a right to read nothing is changed. One to write ends it where it is missing, and with it, it goes on."""
    [node] = make_nodes(cluster, 1)
    leave_traces(cluster, namespace, tmp_path, node=node, pods=1)
    before = sorted(left(cluster))
    cluster.kubectl("create", "clusterrolebinding", "ada", "--clusterrole=admin", "--user=ada")
    ada = cluster.user_kubeconfig("ada")
    refused = uninstall(cluster, kubeconfig=ada)
    assert refused.exit_code == 2
    assert "RBAC must grant this user the verb list on nodes" in refused.stderr
    assert sorted(left(cluster)) == before
    for name, verbs in (("reads", ["get", "list"]), ("writes", ["*"])):
        rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": verbs}
        cluster.api.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    cluster.kubectl("create", "clusterrolebinding", "ada-reads", "--clusterrole=reads", "--user=ada")

    def ended(*, by):
        return by in report_of(uninstall(cluster, "-o", "json", kubeconfig=ada))["problem"]

    wait_for(cluster, lambda: ended(by="cannot delete validatingwebhookconfigurations"), what="ada may read")
    assert sorted(left(cluster)) == before
    cluster.kubectl("create", "clusterrolebinding", "ada-writes", "--clusterrole=writes", "--user=ada")
    wait_for(
        cluster,
        lambda: not list(left(cluster)) or not uninstall(cluster, kubeconfig=ada).exit_code,
        what="all is removed",
    )
    assert not list(left(cluster))


def test_a_line_that_is_kept_waits_for_the_next_installation(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, policy=QUEUES, is_own=True) as fairgate:
        fill(cluster, fairgate.team_a, 2, gpus=10)
        create_pod(cluster, fairgate.team_a, pod("waits", gpus=1, cpu="1", memory="4Gi"))
        assert gated(cluster) == ["waits"]
        fairgate.stop()
        kept = uninstall(cluster, "--keep-queue", "-o", "json")
        assert kept.exit_code == 0, kept.output
        [line] = [step for step in report_of(kept)["steps"] if step["step"] == "line"]
        assert (line["state"], line["objects"]) == ("kept", [f"Pod {fairgate.team_a}/waits"])
        assert "none of them starts until Fairgate is installed again" in line["does"]
        assert [each for each in left(cluster) if each != "waits"] == []
        fairgate.start()
        cluster.kubectl("delete", "pod", "a00", "-n", fairgate.team_a, "--wait")
        wait_bound(cluster, fairgate.team_a, "waits")


def test_a_process_that_is_killed_in_the_middle_is_no_end(cluster, namespace, tmp_path):
    """SIGKILL while the line is let go, then the same command again."""
    [node] = make_nodes(cluster, 1)
    leave_traces(cluster, namespace, tmp_path, node=node, pods=12)
    command = [*FAIRGATE, "uninstall", "--kubeconfig", cluster.kubeconfig, "--pods-per-second=1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        wait_for(cluster, lambda: len(gated(cluster)) < 12, what="the line is let go", poll=0.01)
        process.kill()
    assert any("CustomResourceDefinition" in each for each in left(cluster))
    assert uninstall(cluster).exit_code == 0
    assert not list(left(cluster))


def test_an_admin_with_kubectl_alone_removes_a_gate_that_is_guarded(cluster, namespace, tmp_path):
    """Webhooks deleted, guards in place, server down. So does an admin by RBAC. No user changes what is charged."""
    register(cluster, tmp_path)
    for each in WEBHOOKS:
        cluster.api.delete(each.path)
    labels = {"labels": {"fairgate.dev/team": "a"}}
    wait_for(cluster, lambda: create_pod(cluster, namespace, pod("first", **GATED, **labels)), what="no webhook")
    create_pod(cluster, namespace, pod("second", **GATED, **labels))
    assert patched(cluster, namespace, "first") == ""
    cluster.kubectl("create", "clusterrolebinding", "grace", "--clusterrole=cluster-admin", "--user=grace")
    wait_for(cluster, lambda: patched(cluster, namespace, "second", "--as=grace") == "", what="an admin removes a gate")
    assert not gated(cluster)
    refused = cluster.kubectl.run("label", "pod", "first", "-n", namespace, "--overwrite", "fairgate.dev/team=b")
    assert "(ProtectedKeyChanged)" in refused.stderr


def test_the_plan_of_an_empty_cluster_has_nothing_in_it(cluster):
    async def planned():
        async with await connect(cluster.kubeconfig) as connection:
            return await Uninstallation(connection, QUICK, report=lambda _: None, waits=lambda _: None).plan()

    definitions = [each.path for each in DEFINITIONS if cluster.api.exists(each.path)]
    for path in definitions:
        cluster.api.delete(path)
    wait_for(cluster, lambda: not any(map(cluster.api.exists, definitions)), what="no definition")
    assert [each.objects for each in asyncio.run(planned())] == [()] * len(Step)
    assert json.loads(uninstall(cluster, "-o", "json").stdout)["complete"]
