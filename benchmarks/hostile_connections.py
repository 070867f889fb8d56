"""How a probe fares while clients hold connections to each of the three servers open.

The webhook, the evictor and the page run as separate processes with a soft limit of 1,024 files each. From many
addresses of this machine, clients open connections and send nothing, or a head without its end; a probe asks on a new
connection, as a kubelet does. The table has the probes that were answered and the longest wait. `benchmarks.hostile`
runs it, too.
"""

import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.serving.inputs import policy, world

ROOT: Final = Path(__file__).parents[1]
FILES: Final = 1_024
HELD: Final = 1_100
PROBES: Final = 50
_HEAD: Final = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
_PORT: Final = re.compile(r"https?://[^ \"/]*:(\d+)")
_CONFIG: Final = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "none", "user": {}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none", "namespace": "fairgate-system"}}],
    "current-context": "none",
}
SERVERS: Final = {
    "webhook": [
        *("serve", "--policy", "policy", "--world", "world.yaml", "--certs", "certs"),
        *("--listen", "127.0.0.1:0", "--drain-seconds", "0"),
    ],
    "evictor": ["evict", "--policy", "policy", "--kubeconfig", "kubeconfig", "--dry-run", "--listen", "127.0.0.1:0"],
    "page": ["page", "--policy", "policy", "--world", "world.yaml", "--no-browser"],
}


@contextmanager
def started(name: str) -> Iterator[int]:
    """Start a server with few files; return its port."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "policy").mkdir()
        (folder / "policy" / "policy.yaml").write_text(json.dumps(policy(160)))
        (folder / "world.yaml").write_text(json.dumps(world(10, 10)))
        (folder / "kubeconfig").write_text(json.dumps(_CONFIG))
        command = [
            "sh",
            "-c",
            f'ulimit -Sn {FILES} && exec "$@"',
            "sh",
            sys.executable,
            "-m",
            "webhook",
            *SERVERS[name],
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
        try:
            yield _port(folder / "log", process)
        finally:
            process.terminate()
            process.wait()


def _port(log: Path, process: "subprocess.Popen[bytes]") -> int:
    while process.poll() is None:
        if found := next((m for line in log.read_text().splitlines() if (m := _PORT.search(line))), None):
            return int(found[1])
        time.sleep(0.1)
    sys.exit(f"the server did not start:\n{log.read_text()[-2000:]}")


def probe(port: int, *, is_secure: bool) -> float | None:
    """Return the seconds until the answer of a probe; None without one."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    before = time.perf_counter()
    connection = (
        http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=5)
        if is_secure
        else http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    )
    try:
        connection.request("GET", "/healthz")
        is_answered = connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return time.perf_counter() - before if is_answered else None


def hold(port: int, sent: bytes, stack: ExitStack, *, is_secure: bool) -> None:
    """Open connections from many addresses; with TLS, those that send nothing do not even begin their handshake."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for number in range(HELD):
        address = (f"127.1.{number // 250}.{number % 250 + 2}", 0)
        held = socket.create_connection(("127.0.0.1", port), timeout=5, source_address=address)
        stack.callback(held.close)
        try:
            if is_secure and sent:
                held = context.wrap_socket(held)
                stack.callback(held.close)
            held.sendall(sent)
        except OSError:
            continue


def measure() -> None:
    """Print a table."""
    print(f"\n{HELD:,} connections held open to a server with a soft limit of {FILES:,} files, {PROBES} probes:")
    print("\n| server | sent | probes answered | longest wait, ms |\n| --- | --- | --- | --- |")
    for name in SERVERS:
        for what, sent in (("nothing", b""), ("a head without its end", _HEAD)):
            with started(name) as port, ExitStack() as stack:
                is_secure = name == "webhook"
                hold(port, sent, stack, is_secure=is_secure)
                waits = [probe(port, is_secure=is_secure) for _ in range(PROBES)]
                answered = [each for each in waits if each is not None]
                longest = f"{1000 * max(answered):.0f}" if answered else "none"
                print(f"| {name} | {what} | {len(answered)} | {longest} |", flush=True)


if __name__ == "__main__":
    measure()
