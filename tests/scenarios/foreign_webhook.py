"""A mutating webhook of another product, which the API server calls over TLS: it answers each review with one patch."""

from __future__ import annotations

import json
import ssl
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from certs.authority import certificate_to_pem, key_to_pem, make_ca, make_leaf, new_key
from certs.serving import utc_now
from tests.control_plane.api import ApiError
from tests.control_plane.cleanup import ADMISSION
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.workbench import wait_for

PATH = f"{ADMISSION}/mutatingwebhookconfigurations"


@contextmanager
def foreign_webhook(
    cluster: ControlPlane,
    namespace: str,
    patch_of: Callable[[dict[str, Any]], list[dict[str, Any]]],
    *,
    name: str,
    again: str,
) -> Iterator[list[str]]:
    """Have pods of a namespace patched by `patch_of`; `again` is its reinvocationPolicy. Yields the names it saw.

    The API server calls a new webhook within a second: a dry run shows that it does before the caller creates a pod.
    """
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
            seen.append(request["object"]["metadata"].get("name", ""))
            patch = b64encode(json.dumps(patch_of(request["object"])).encode()).decode()
            response = {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
            body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context, ca = _certified()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    webhook = {
        "name": f"{name}.example.org",
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_address[1]}/",
            "caBundle": b64encode(ca).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": again,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    cluster.api.create(PATH, {"metadata": {"name": name}, "webhooks": [webhook]})
    try:
        wait_for(cluster, lambda: _is_called(cluster, namespace, seen), what=f"the API server calls {name}")
        yield seen
    finally:
        cluster.api.delete(f"{PATH}/{name}")
        server.shutdown()
        server.server_close()
        thread.join()


def _is_called(cluster: ControlPlane, namespace: str, seen: list[str]) -> bool:
    probe = {"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "main", "image": "example/probe"}]}}
    with suppress(ApiError):  # whatever other webhooks say of the patched pod
        cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", probe, dryRun="All")
    was_called = bool(seen)
    seen.clear()
    return was_called


def _certified() -> tuple[ssl.SSLContext, bytes]:
    """A server's context with a certificate for 127.0.0.1, and the CA that issued it."""
    authority, key = make_ca(new_key(), now=utc_now()), new_key()
    leaf = make_leaf(authority, key=key.public_key(), hosts=("127.0.0.1",), now=utc_now(), lifetime=timedelta(days=1))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        certificate, private = Path(folder, "tls.crt"), Path(folder, "tls.key")
        certificate.write_bytes(certificate_to_pem(leaf))
        private.write_bytes(key_to_pem(key))
        context.load_cert_chain(certificate, private)
    return context, certificate_to_pem(authority.certificate)
