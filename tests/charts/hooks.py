"""Runs the pods of helm's hooks while helm waits for them, and reports how they ended as kubelet does.

hooks = Hooks(cluster, kubelet, namespace)
hooks.run_beside(lambda: helm("install", …), meanwhile=…)
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from tests.charts.kubelet import Kubelet
from tests.control_plane.cluster import ControlPlane

T = TypeVar("T")

POLL_SECONDS = 0.1
OF_HOOKS = "app.kubernetes.io/name in (fairgate-policy-check, fairgate-uninstall)"


class Hooks:
    """The pods of hooks in one namespace. `printed` is what the last one wrote, `tokens` are those they used."""

    def __init__(self, cluster: ControlPlane, kubelet: Kubelet, namespace: str) -> None:
        self.printed = ""
        self.tokens: set[str] = set()
        self._cluster = cluster
        self._kubelet = kubelet
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._ran: set[str] = set()

    def run_beside(self, command: Callable[[], T], *, meanwhile: Callable[[], None]) -> T:
        """Run a command that may wait for hooks, and the hooks; returns the result of the command.

        `meanwhile` is called again and again until then.
        """
        with ThreadPoolExecutor(max_workers=2) as pool:
            running = pool.submit(command)
            hook: Future[None] | None = None
            while wait([running], timeout=POLL_SECONDS).not_done:
                meanwhile()
                if hook is not None and hook.done():
                    hook.result()
                    hook = None
                hook = hook or pool.submit(self._run_started)
            return running.result()

    def _run_started(self) -> None:
        for pod in self._cluster.api.list(self._pods, labelSelector=OF_HOOKS):
            uid = pod["metadata"]["uid"]
            if pod["status"]["phase"] == "Running" and uid not in self._ran:
                self._ran.add(uid)
                [container] = pod["spec"]["containers"]
                done, token = self._kubelet.run(pod["spec"], container)
                self.tokens |= {token} - {""}
                self.printed = done.stdout + done.stderr
                label = "fairgate.test/fails" if done.returncode else "fairgate.test/completes"
                path = f"{self._pods}/{pod['metadata']['name']}"
                self._cluster.api.patch(path, {"metadata": {"labels": {label: "true"}}})
