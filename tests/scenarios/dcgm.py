"""What DCGM's exporter shows, with its names and labels: an exposition that a real Prometheus scrapes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

JOB = "nvidia-dcgm-exporter"
EXPORTER = {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-x7k2p"}
"""The labels of the exporter's own pod, which Prometheus adds to a target where labels are not honored."""

UTIL = "DCGM_FI_DEV_GPU_UTIL"
_HELP = f"# HELP {UTIL} GPU utilization (in %).\n# TYPE {UTIL} gauge\n"


class Exporter:
    """An exporter: the utilization of each GPU of each pod, in percent."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.address = f"127.0.0.1:{server.server_address[1]}"
        self.used: dict[tuple[str, str], Sequence[float]] = {}

    def use(self, namespace: str, name: str, *percent: float) -> None:
        """Set the utilization of the GPUs of a pod."""
        self.used[namespace, name] = percent

    def scrape(self, job: str = JOB, **labels: str) -> dict[str, object]:
        """A scrape configuration of it, in which Prometheus does not honor its labels."""
        target = {"targets": [self.address], "labels": EXPORTER | labels}
        return {"job_name": job, "honor_labels": False, "static_configs": [target]}

    def text(self) -> str:
        """The exposition."""
        rows = [
            _row(namespace, name, number, percent)
            for (namespace, name), values in list(self.used.items())
            for number, percent in enumerate(values)
        ]
        return _HELP + "".join(rows)


def _row(namespace: str, name: str, number: int, percent: float) -> str:
    labels: Mapping[str, object] = {
        "gpu": number,
        "UUID": f"GPU-{namespace}-{name}-{number}",
        "pci_bus_id": f"00000000:{number:02X}:00.0",
        "device": f"nvidia{number}",
        "modelName": "NVIDIA A100-SXM4-80GB",
        "Hostname": "node-0",
        "DCGM_FI_DRIVER_VERSION": "570.86.15",
        "container": "main",
        "namespace": namespace,
        "pod": name,
    }
    inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{UTIL}{{{inside}}} {percent:g}\n"


@contextmanager
def exporting() -> Iterator[Exporter]:
    """Serve an exposition until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = found.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Exporter(server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
