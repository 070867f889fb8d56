"""The other sides of a server that is observed: one process each.

`client`   posts a review at a rate that does not depend on the answers, and prints the latencies from the due times;
`viewers`  ten open pages: a stream of events each, and the view fetched again after events as the scripts do;
`pods`     pods that are created and deleted again at a rate, so that there is something to record and to show.
"""

import asyncio
import itertools
import json
import ssl
import time
from collections import deque
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

VIEWS = ("/", "/", "/", "/", "/teams", "/teams", "/queue", "/queue", "/decisions", "/search?q=pod")
"""What each of the ten pages shows."""

AGAIN_SECONDS = {"/": 5.0, "/teams": 2.0, "/queue": 4.0, "/decisions": 2.0, "/search?q=pod": 5.0}
"""How often a view is fetched again at most: `data-live` in its template."""

ALIVE = 50
CLIENT_SECONDS = 2.0
"""Answers that are later count as failures."""


async def run_client(url: str, body: bytes, *, connections: int, seconds: float, per_second: float) -> None:
    """Post the body at a rate and print the latencies in microseconds."""
    parts = urlsplit(url)
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    idle: asyncio.LifoQueue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.LifoQueue()
    for _ in range(connections):
        idle.put_nowait(await asyncio.open_connection(parts.hostname, parts.port, ssl=tls))
    taken: list[float] = []

    async def one(due: float) -> None:
        reader, writer = connection = await idle.get()
        writer.write(request)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(answer.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        if answer.startswith(b"http/1.1 200 "):
            taken.append(time.perf_counter() - due)
        idle.put_nowait(connection)

    begun = time.perf_counter() + 0.1
    async with asyncio.timeout(seconds + CLIENT_SECONDS), asyncio.TaskGroup() as group:
        for number in range(int(seconds * per_second)):
            due = begun + number / per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(one(due))
    print("RESULT", json.dumps({"asked": int(seconds * per_second), "taken_us": [round(1e6 * each) for each in taken]}))


async def run_viewers(url: str) -> None:
    """Keep ten pages open until the process ends."""
    parts = urlsplit(url)
    base = f"{parts.scheme}://{parts.netloc}"
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(base, timeout=timeout, connector=connector) as session:
        async with session.get(url.removeprefix(base), allow_redirects=False) as entered:
            cookie = entered.headers["Set-Cookie"].partition(";")[0]
        session.headers["Cookie"] = cookie
        async with asyncio.TaskGroup() as group:
            for view in VIEWS:
                group.create_task(_view(session, view))


async def _view(session: aiohttp.ClientSession, view: str) -> None:
    await _fetch(session, view)
    if view == "/":
        await _fetch(session, "/map.json")
    print("OPEN", view, flush=True)
    last = time.monotonic()
    while True:  # a browser connects again, too
        async with session.get("/events", raise_for_status=True) as stream:
            async for line in stream.content:
                if not line.startswith(b"data:"):
                    continue
                print("EVENT", view, flush=True)
                if time.monotonic() - last >= AGAIN_SECONDS[view]:
                    last = time.monotonic()
                    await _fetch(session, view)


async def _fetch(session: aiohttp.ClientSession, path: str) -> None:
    async with session.get(path, raise_for_status=True) as answer:
        await answer.read()


async def run_pods(server: str, token: str, ca: Path, namespaces: list[str], *, per_second: float) -> None:
    """Create pods and delete the oldest, at a rate, until the process ends."""
    tls = ssl.create_default_context(cafile=ca)
    alive: deque[str] = deque()
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(server, headers=headers, connector=aiohttp.TCPConnector(ssl=tls)) as session:
        for number in itertools.count():
            pods = f"/api/v1/namespaces/{namespaces[number % len(namespaces)]}/pods"
            async with session.post(pods, json=_pod(f"pod-{number}")) as answer:
                if answer.ok:
                    alive.append(f"{pods}/pod-{number}")
            if len(alive) > ALIVE:
                async with session.delete(alive.popleft()) as answer:
                    await answer.read()
            await asyncio.sleep(1 / per_second)


def _pod(name: str) -> dict[str, object]:
    amounts = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
