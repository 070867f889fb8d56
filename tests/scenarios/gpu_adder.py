"""A mutating webhook of another product: it gives the first container of every pod with label `adds` so many GPUs."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.control_plane.cleanup import ADMISSION
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import GPU

_CONFIGURATIONS = f"{ADMISSION}/mutatingwebhookconfigurations"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        number = request["object"]["metadata"]["labels"]["adds"]
        patch = [{"op": "add", "path": "/spec/containers/0/resources/limits", "value": {GPU: number}}]
        patch.append({"op": "add", "path": "/spec/containers/0/resources/requests", "value": {GPU: number}})
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        answer = {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch", "patch": encoded}
        body = json.dumps(review | {"request": None, "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def adding_gpus(cluster: ControlPlane, folder: Path, *, name: str) -> Iterator[None]:
    """Serve, registered as an object of this name, until the end of the block."""
    issued = cluster.authority.issue()
    (folder / "adder.pem").write_bytes(issued.key + issued.certificate)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "adder.pem")
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    webhook = {
        "name": "adder.example.org",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_port}/",
            "caBundle": base64.b64encode(cluster.authority.pem).decode(),
        },
        "objectSelector": {"matchExpressions": [{"key": "adds", "operator": "Exists"}]},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    cluster.api.create(_CONFIGURATIONS, {"metadata": {"name": name}, "webhooks": [webhook]})
    try:
        yield
    finally:
        cluster.api.delete(f"{_CONFIGURATIONS}/{name}")
        server.shutdown()
        server.server_close()
