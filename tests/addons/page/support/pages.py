"""Pages in a test: a state from a world, and a page over it on a port of its own, in a thread with its own loop."""

import asyncio
import json
import threading
from contextlib import contextmanager
from http.client import HTTPConnection

from tests import builders as b
from tests.cli import sample_world
from webhook.addons.page.access.access import UrlAuthenticator
from webhook.addons.page.asked import CommandAnswers
from webhook.addons.page.live.cluster_state import ClusterState, note_pod
from webhook.addons.page.root import Page, PageSettings
from webhook.addons.page.run import reading_of
from webhook.addons.page.views.gpu_map import ZONE
from webhook.cli.world_source import WorldObjects
from webhook.files import Snapshots
from webhook.policy.watch import parse

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
GATE = "fairgate.dev/queue"


def policy_of(text=sample_world.POLICY):
    return parse({"policy.yaml": text.encode()}, origin="policy.yaml")


def decided(pod, *, gpus="4", node="gpu-1", at="2026-11-22T10:00:00Z", code="Admitted", demand=None):
    """The pod with a decision of Fairgate."""
    decision = {
        "demand": demand or {b.GPU: int(gpus)},
        "gpus": gpus,
        "mode": "auto",
        "nodes": [node],
        "code": code,
        "policy": "p1",
        "at": at,
        "user": "alice",
    }
    pod["metadata"].setdefault("annotations", {})["fairgate.dev/decision"] = json.dumps(decision)
    return pod


def named(objects):
    """The objects with a UID and a time of creation, as the API server has them."""
    for each in objects:
        metadata = each["metadata"]
        metadata.setdefault("uid", f"uid-{each['kind']}-{metadata.get('namespace', '')}-{metadata['name']}")
        metadata.setdefault("creationTimestamp", "2026-11-22T09:00:00Z")
    return objects


def waiting(name, *, namespace="nlp", gpus=8, created="2026-11-22T09:30:00Z"):
    """A pod that waits in line."""
    labels = {"fairgate.dev/team": namespace}
    made = b.pod(name, namespace=namespace, gpus=gpus, labels=labels, schedulingGates=[{"name": GATE}])
    made["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": created}
    decided(made, gpus=str(gpus), at=created, code="WaitsForRoom")
    made["metadata"]["annotations"]["fairgate.dev/waiting"] = "waits: no room; 1st in the queue"
    return made


def sample_objects():
    """The sample world with times, decisions, a held node, namespaces and a line."""
    objects = sample_world.objects()
    for each in objects:
        if each["kind"] == "Node" and each["metadata"]["name"] == "gpu-10":
            each["spec"]["taints"] = [{"key": "fairgate.dev/held", "value": "x", "effect": "NoSchedule"}]
        if each["kind"] == "Pod" and each["metadata"]["name"] in ("train-0", "eval"):
            decided(each, node="gpu-1")
    names = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in ("nlp", "serving", "vision")]
    return named([*names, *objects, waiting("later", gpus=4), waiting("latest")])


def state_of(objects=None, *, policy=None):
    """The state of a page over these objects."""
    objects = sample_objects() if objects is None else objects
    reading = reading_of(WorldObjects(tuple(objects)), policy or policy_of(), "test")
    state = ClusterState(reading, "world of a test", ZONE)
    for each in objects:
        if each["kind"] == "Pod":
            note_pod(each, state)
    state.touch_all()
    return state


class Served:
    """A page that is served: its state, URL and loop. Requests are those of a plain client."""

    def __init__(self, state, authenticator, page, url, loop):
        self.state = state
        self.authenticator = authenticator
        self.page = page
        self.url = url
        self.loop = loop
        self.base = url.partition("/open")[0].rstrip("/")
        self.port = int(self.base.rpartition(":")[2])
        self.cookie = ""

    def call(self, function):
        """Run a function on the page's loop, as an event of the watch would."""

        async def run():
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(90)

    def enter(self):
        """Open the printed URL; later requests have its cookie."""
        status, headers, body = self.request(self.url.removeprefix(self.base))
        assert status == 200, body
        self.cookie = headers["Set-Cookie"].partition(";")[0]
        return headers["Set-Cookie"]

    def request(self, path, *, method="GET", body=None, headers=None, host=None):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=90)
        sent = {"Host": host or f"127.0.0.1:{self.port}", **({"Cookie": self.cookie} if self.cookie else {})}
        connection.request(method, path, body=body, headers=sent | (headers or {}))
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read().decode()
        connection.close()
        return found

    def get(self, path):
        status, _, body = self.request(path)
        return status, body


@contextmanager
def served(state, *, authenticator=None, history=None, settings=None, keep=None, snapshots=None):
    """Serve a page until the end of the block."""
    authenticator = authenticator or UrlAuthenticator()
    snapshots = snapshots or Snapshots(seconds=60)
    ready, found = threading.Event(), {}
    loop = asyncio.new_event_loop()

    async def main():
        answers = CommandAnswers(state, snapshots, cluster=None)
        page = Page(state, authenticator, answers, snapshots=snapshots, history=history)
        found["page"] = page

        def on_ready(url):
            found["url"] = url
            ready.set()

        async def stay():
            await asyncio.Event().wait()

        await page.serve(settings or PageSettings(), keep=keep or stay, on_ready=on_ready)

    task = loop.create_task(main())

    def work():
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(90)
    assert "url" in found, task
    try:
        yield Served(state, authenticator, found["page"], found["url"], loop)
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(20)
