"""Another validating webhook of the cluster: it refuses some of the pods that Fairgate has just allowed and charged."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from tests.control_plane.cluster import ControlPlane

NAME = "bystander.example.org"
REFUSED_LABEL = "bystander.example.org/refuse"


@asynccontextmanager
async def bystander(cluster: ControlPlane, folder: Path, port: int) -> AsyncIterator[None]:
    """Refuse every pod with the label `bystander.example.org/refuse`, as the last of the webhooks."""
    pair = cluster.authority.issue("bystander")
    (folder / "bystander.pem").write_bytes(pair.certificate + pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "bystander.pem")
    app = web.Application()
    app.router.add_post("/", _answer)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=3600)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    cluster.kubectl.apply([_configuration(f"https://127.0.0.1:{port}/", cluster.authority.pem)])
    try:
        yield
    finally:
        cluster.kubectl("delete", "validatingwebhookconfiguration", NAME)
        await runner.cleanup()


async def _answer(request: web.Request) -> web.Response:
    review = await request.json()
    asked = review["request"]
    allowed = REFUSED_LABEL not in (asked["object"]["metadata"].get("labels") or {})
    response = {"uid": asked["uid"], "allowed": allowed, "status": {"code": 403, "message": "the bystander says no"}}
    return web.json_response({**{key: review[key] for key in ("apiVersion", "kind")}, "response": response})


def _configuration(url: str, ca_pem: bytes) -> dict[str, object]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    webhook = {
        "name": NAME,
        "clientConfig": {"url": url, "caBundle": base64.b64encode(ca_pem).decode()},
        "rules": [rule],
        "objectSelector": {"matchExpressions": [{"key": REFUSED_LABEL, "operator": "Exists"}]},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return json.loads(
        json.dumps(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": NAME},
                "webhooks": [webhook],
            }
        )
    )
