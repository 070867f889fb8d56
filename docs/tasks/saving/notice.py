"""Fairgate's notice of an eviction, for a training loop. Needs Python's standard library alone."""

import json, os, signal, ssl, sys, time, urllib.request
from pathlib import Path

PODINFO = Path("/etc/podinfo")
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ON, SAVE, END = 0, 1, 2
ENDED = 128 + signal.SIGTERM  # the exit status of a process that SIGTERM ended


class Notice:
    """Says after each step whether to go on, to save, or to save and end."""

    def __init__(self):
        self._seen, self._is_ending = "", False
        signal.signal(signal.SIGTERM, self._end)

    def due(self):
        """Return SAVE once for each announced time, END after SIGTERM, else ON."""
        before, self._seen = self._seen, _read(PODINFO / "evict-at")
        return END if self._is_ending else SAVE if self._seen not in ("", before) else ON

    def saved(self):
        """State on the pod that its work is saved as of now; where that fails, print why and go on."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        body = {"metadata": {"annotations": {"fairgate.dev/checkpointed-at": at}}}
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        pod = f"namespaces/{_read(ACCOUNT / 'namespace')}/pods/{_read(PODINFO / 'name')}"
        url = f"https://{f'[{host}]' if ':' in host else host}:{port}/api/v1/{pod}"
        headers = {
            "Authorization": f"Bearer {_read(ACCOUNT / 'token')}",
            "Content-Type": "application/merge-patch+json",
        }
        try:
            request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="PATCH")
            context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
            urllib.request.urlopen(request, context=context, timeout=5).close()
        except (OSError, ValueError) as error:
            print(f"checkpointed-at is not set: {error}", file=sys.stderr, flush=True)

    def _end(self, *_):
        self._is_ending = True


def _read(path):
    try:
        return path.read_text().strip()
    except OSError:
        return ""
