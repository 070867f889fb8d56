"""A server returns the memory of what clients send to the system."""

import subprocess
import sys

import pytest

_PROGRAM = """
import asyncio, re, sys
from pathlib import Path
from aiohttp import web
from webhook.http.connections import Bounds
from webhook.http.server import open_sockets
from webhook.http.server import connections_of, listening

MIB = 1024 * 1024

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

async def handle(request):
    return web.Response()

async def main():
    if sys.argv[1] == "server":
        connections = connections_of(handle, Bounds(connections=9, of_address=9, idle_seconds=9))
        async with listening(connections, open_sockets("127.0.0.1", 0), finish_seconds=1):
            print(grown())
    else:
        print(grown())

def grown():
    bytearray(16 * MIB)  # freed at once: from now on glibc may take such blocks from the heap
    before = resident()
    large, after_them = [], []
    for _ in range(8):
        large.append(b"x" * (4 * MIB))
        after_them.append(b"x" * 64_000)  # keeps the heap from shrinking
    large.clear()
    return resident() - before

asyncio.run(main())
"""


def _grown_mib(what: str) -> float:
    done = subprocess.run([sys.executable, "-c", _PROGRAM, what], capture_output=True, text=True, check=True)
    return float(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_large_requests_took_goes_back_to_the_system() -> None:
    assert _grown_mib("server") < 8


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_without_a_server_the_heap_keeps_it() -> None:
    # If this fails, the C library returns large blocks by itself, and the server's setting can go.
    assert _grown_mib("nothing") > 16
