"""A small JSON client of the API server, for frequent requests of tests: one kept connection, 2 ms a call.

`kubectl` costs a process and a tenth of a second of CPU per call; use it where the test is about what users do.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from typing import Any
from urllib.parse import urlencode

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class ApiError(Exception):
    """The API server refused; `status` is the HTTP code, `message` its text, `body` the whole Status object."""

    def __init__(self, status: int, message: str, *, body: dict[str, Any] | None = None):
        super().__init__(f"HTTP {status}: {message}")
        self.status = status
        self.message = message
        self.body = body or {}


IDLE_SECONDS = 30
"""A connection that was idle for longer is not used again: the API server may be closing it just then."""


class Api:
    """One user's view of the API server; safe to use from several threads, one request at a time.

    `acts_as` names a user to impersonate.
    """

    def __init__(self, *, port: int, ca_pem: bytes, token: str, acts_as: str = ""):
        self._port = port
        self._context = ssl.create_default_context(cadata=ca_pem.decode())
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        if acts_as:
            self._headers |= {"Impersonate-User": acts_as, "Impersonate-Group": "system:authenticated"}
        self._connection: http.client.HTTPSConnection | None = None
        self._used = 0.0
        self._lock = threading.Lock()

    def get(self, path: str, **query: str) -> Any:
        """GET a path such as /api/v1/nodes; query values become the query string (labelSelector="a=b")."""
        return self.request("GET", path, query=query)

    def list(self, path: str, **query: str) -> list[dict[str, Any]]:
        """GET the items of a list."""
        return self.get(path, **query)["items"]

    def exists(self, path: str) -> bool:
        """Whether there is an object at this path."""
        try:
            self.get(path)
        except ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def create(self, path: str, body: dict[str, Any], **query: str) -> dict[str, Any]:
        """POST an object to a collection, or to a subresource such as …/eviction."""
        return self.request("POST", path, body, query=query)

    def patch(self, path: str, body: Any, *, content_type: str = MERGE_PATCH, **query: str) -> dict[str, Any]:
        """PATCH an object or one of its subresources."""
        return self.request("PATCH", path, body, content_type=content_type, query=query)

    def delete(self, path: str, body: dict[str, Any] | None = None, **query: str) -> dict[str, Any]:
        """DELETE an object or a whole collection; `body` may hold DeleteOptions."""
        return self.request("DELETE", path, body, query=query)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> Any:
        """Send one request and decode its response: JSON, or text where the server responds with text."""
        target = f"{path}?{urlencode(query)}" if query else path
        payload = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({"Content-Type": content_type} if payload is not None else {})
        with self._lock:
            status, raw, answered_type = self._exchange(method, target, payload, headers)
        answer = json.loads(raw) if answered_type.startswith("application/json") else raw.decode()
        if status >= http.HTTPStatus.BAD_REQUEST:
            details = answer if isinstance(answer, dict) else {}
            raise ApiError(status, details.get("message", "") or raw.decode(), body=details)
        return answer

    def close(self) -> None:
        """Close the kept connection; the next request opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(
        self, method: str, target: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes, str]:
        if time.monotonic() > self._used + IDLE_SECONDS:
            self.close()
        self._used = time.monotonic()
        fresh = self._connection is None
        if self._connection is None:
            self._connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=60, context=self._context)
        try:
            self._connection.request(method, target, payload, headers)
            response = self._connection.getresponse()
            return response.status, response.read(), response.headers.get("Content-Type", "")
        except (OSError, http.client.HTTPException):
            self.close()
            # The server closes idle connections. Only a read is repeated: a write may have been carried out.
            if method == "GET" and not fresh:
                return self._exchange(method, target, payload, headers)
            raise
