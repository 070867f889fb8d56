"""The webhook in this process, for many requests: the same bytes in and out, without HTTP."""

import json
from pathlib import Path

from tests.blackbox.objects import Json, encode
from tests.blackbox.server import as_kubectl_prints, write_policy
from webhook.core.world.world import World
from webhook.kube.admission.reviews import ReviewError
from webhook.kube.world_file.world_file import fill_world
from webhook.policy.watch import load
from webhook.server.review.reviewer import AdmissionReviewer
from webhook.server.review.verdicts import Answer, MemoryLedger


class InProcess:
    """The webhook on an embedded world; `ask` returns its answer, or the text of a malformed review's error."""

    def __init__(self, folder: Path, policy: Json, objects: list[Json]) -> None:
        write_policy(folder, policy)
        self._policy = load(folder)
        self._text = as_kubectl_prints(objects)
        self.reset()

    def reset(self) -> None:
        """Restore the initial world."""
        self.world = World(self._policy)
        fill_world(self.world, self._text, name="world")
        ledger = MemoryLedger(self.world, lambda: 0.0)
        self._reviewer = AdmissionReviewer(self.world, ledger, now_text=lambda: "2026-01-01T00:00:00Z")

    def ask(self, path: str, review: object) -> Json | str:
        """Send a review, or any bytes, to /mutate or /validate."""
        body = review if isinstance(review, bytes) else encode(review)
        try:
            answer = ask(self._reviewer, path.removeprefix("/"), body)
        except ReviewError as refused:
            return f"{refused.status} {refused.text}"
        body: Json = json.loads(answer.body)
        return body

    def charged(self) -> dict[str, int]:
        """GPU units charged to each team."""
        return {team: book.total for team, book in self.world.usage_by_team().items() if book.total}


def ask(reviewer: AdmissionReviewer, method: str, body: bytes) -> Answer:
    """Call a method of a reviewer. A charge must not wait: no other request may run between it and the decision."""
    if method != "validate":
        answer: Answer = getattr(reviewer, method)(body)
        return answer
    call = reviewer.validate(body, deadline=1.0)
    try:
        call.send(None)
    except StopIteration as done:
        charged: Answer = done.value
        return charged
    raise AssertionError("the webhook waited in the middle of a decision")
