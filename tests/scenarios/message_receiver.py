"""A receiver of messages to people beside a control plane: an HTTP server in threads, in TLS where it has a CA."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.cluster.support.pki import Authority


@dataclass
class MessageReceiver:
    """What came, in order; `status` is its answer."""

    url: str = ""
    status: int = 200
    messages: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The messages of one kind."""
        return [each for each in self.messages if each["commonLabels"]["alertname"] == f"Fairgate{kind.capitalize()}"]


@contextmanager
def receiving_messages(authority: Authority | None = None) -> Iterator[MessageReceiver]:
    """Receive until the end of the block."""
    receiver = MessageReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if receiver.status < 300:
                receiver.tokens.append(self.headers.get("Authorization", ""))
                receiver.messages.append(json.loads(body))
            self.send_response(receiver.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scheme = "http"
    if authority is not None:
        server.socket = authority.server("receiver").wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        scheme = "https"
    receiver.url = f"{scheme}://127.0.0.1:{server.server_address[1]}/"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
