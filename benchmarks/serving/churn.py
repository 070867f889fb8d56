"""Clients that create and delete pods without end over keep-alive connections, as API servers ask a webhook."""

import asyncio
import base64
import json
import random
import ssl
import time
import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.serving.inputs import review_body
from webhook.kube.admission.pod_patch import apply

CREATED: Final = 0.6
"""The share of creations: with fewer deletions the teams are at their limits soon, and stay there."""


_TEMPLATE: Final = review_body()


@dataclass(slots=True)
class Churn:
    """Clients of one server, the pods that they have created, and the answers by kind."""

    url: str
    namespaces: list[str]
    dice: random.Random
    alive: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    answers: Counter[str] = field(default_factory=Counter)

    async def run(self, *, connections: int, until: float) -> None:
        """Send requests over so many connections until a time of the monotonic clock."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        await asyncio.gather(*(self._client(context, until) for _ in range(connections)))

    async def _client(self, context: ssl.SSLContext, until: float) -> None:
        host, _, port = self.url.split("/")[2].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        while time.monotonic() < until:
            namespace = self.dice.choice(self.namespaces)
            alive = self.alive[namespace]
            if alive and self.dice.random() > CREATED:
                await self._delete(reader, writer, alive.pop(self.dice.randrange(len(alive))))
            else:
                await self._create(reader, writer, namespace)
        writer.close()

    async def _create(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, namespace: str) -> None:
        review = new_review(namespace, self.dice)
        advice = await _ask(reader, writer, "/mutate", review)
        if self._count("refused by /mutate", advice):
            return
        patch = json.loads(base64.b64decode(advice.get("patch", "W10=")))
        review["request"]["object"] = apply(review["request"]["object"], patch)
        answer = await _ask(reader, writer, "/validate", review)
        if not self._count("refused by /validate", answer):
            self.answers["created"] += 1
            self.alive[namespace].append(review)

    async def _delete(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, review: dict[str, Any]) -> None:
        request = review["request"]
        request |= {"operation": "DELETE", "oldObject": request["object"], "object": None}
        await _ask(reader, writer, "/validate", review)
        self.answers["deleted"] += 1

    def _count(self, what: str, answer: dict[str, Any]) -> bool:
        if answer["allowed"]:
            return False
        self.answers[f"{what} ({answer['status']['code']})"] += 1
        return True


def new_review(namespace: str, dice: random.Random) -> dict[str, Any]:
    """Return the review of a new pod: one of many sizes, with a name and a UID of its own."""
    review: dict[str, Any] = json.loads(_TEMPLATE)
    request, uid = review["request"], str(uuid.UUID(int=dice.getrandbits(128)))
    metadata = request["object"]["metadata"]
    request |= {"uid": uid, "namespace": namespace, "name": f"pod-{uid[:13]}"}
    metadata |= {"name": request["name"], "namespace": namespace, "uid": uid}
    metadata["ownerReferences"][0] |= {"uid": uid, "name": f"train-{uid[:8]}"}
    gpus = dice.choice((1, 1, 1, 2, 3, 4, 8))
    amounts = {
        "cpu": str(gpus * dice.randint(2, 12)),
        "memory": f"{gpus * dice.choice((8, 16, 24, 32, 48, 64))}Gi",
        "nvidia.com/gpu": str(gpus),
    }
    request["object"]["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return review


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, review: dict[str, Any]
) -> dict[str, Any]:
    body = json.dumps(review).encode()
    head = f"POST {path}?timeout=10s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    text = await reader.readexactly(int(answer.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    if not answer.startswith(b"http/1.1 200 "):
        raise SystemExit(f"{path} answered {answer.decode()}{text.decode()}")
    return json.loads(text)["response"]
