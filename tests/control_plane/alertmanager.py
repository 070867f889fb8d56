"""Alertmanager: takes alerts, and calls a webhook about them soon."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator

from tests.control_plane.build import binary_path
from tests.control_plane.processes import Processes, free_ports
from tests.control_plane.versions import ALERTMANAGER
from tests.control_plane.waiting import wait_for

TIMEOUT_SECONDS = 60


@contextlib.contextmanager
def alertmanager(webhook: str) -> Iterator[str]:
    """Run Alertmanager, which calls this webhook, until the end of the block, and give its address."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    soon = {"group_by": ["alertname"], "group_wait": "100ms", "group_interval": "500ms", "repeat_interval": "1h"}
    config = {
        "route": {"receiver": "people", **soon},
        "receivers": [{"name": "people", "webhook_configs": [{"url": webhook}]}],
    }
    processes = Processes()
    try:
        file = processes.folder / "alertmanager.yml"
        file.write_text(json.dumps(config))
        command = (
            binary_path(ALERTMANAGER, "alertmanager"),
            f"--config.file={file}",
            f"--storage.path={processes.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        )
        processes.start("alertmanager", command)

        def is_ready() -> bool:
            processes.check_running("alertmanager")
            with urllib.request.urlopen(f"{url}/-/ready", timeout=TIMEOUT_SECONDS) as answer:
                return answer.status == 200

        wait_for(is_ready, what="Alertmanager is ready", describe=lambda: processes.log("alertmanager"))
        yield url
    finally:
        processes.close()
