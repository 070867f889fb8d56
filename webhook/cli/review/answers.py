"""AdmissionReviews answered as kube-apiserver would be: first by the mutating webhook, then by the validating one."""

import asyncio
import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jsonpatch

from webhook.cli.review.ample_nodes import AmpleNodes
from webhook.cli.review.results import Place
from webhook.core.model.names import Namespace
from webhook.core.world.world import World
from webhook.kube.admission.review import ReviewError
from webhook.kube.workloads.model import mapping, text
from webhook.server.review.memory_ledger import MemoryLedger
from webhook.server.review.reviewer import Gate
from webhook.simulation.simulate import Template, read_template

_NO_DEADLINE = float("inf")


def answer_reviews(
    reviews: Sequence[tuple[Place, Mapping[str, Any]]],
    world: World,
    *,
    room_is_known: bool,
    now_text: str,
    on_problem: Callable[[Place, str], None],
) -> list[dict[str, Any]]:
    """Answer each review in turn, with what those before it took; `on_problem` is told of those that are none."""
    gate = Gate(
        world,
        MemoryLedger(world, lambda: 0.0),
        now_text=lambda: now_text,
    )
    imagination = None if room_is_known else AmpleNodes(world)
    answers = []
    for place, review in reviews:
        if imagination is not None:
            _imagine(imagination, review, world)
        try:
            answers.append(asyncio.run(_answer(gate, review)))
        except ReviewError as error:
            on_problem(place, error.text)
    return answers


async def _answer(gate: Gate, review: Mapping[str, Any]) -> dict[str, Any]:
    """Ask both webhooks; the answer has the patch and warnings of the first and the verdict of the second."""
    request = mapping(review.get("request"))
    if mapping(request.get("object")).get("kind", "Pod") != "Pod":
        whole: dict[str, Any] = json.loads((await gate.workloads(_bytes(review), deadline=_NO_DEADLINE)).body)
        return whole
    advice: dict[str, Any] = json.loads((await gate.mutate(_bytes(review), deadline=_NO_DEADLINE)).body)
    if not advice["response"]["allowed"]:
        return advice
    if "patch" in advice["response"]:
        patch = json.loads(base64.b64decode(advice["response"]["patch"]))
        request = {**request, "object": jsonpatch.apply_patch(request["object"], patch)}
    answer = await gate.validate(_bytes({**review, "request": request}), deadline=_NO_DEADLINE)
    verdict: dict[str, Any] = json.loads(answer.body)
    return advice if verdict["response"]["allowed"] else verdict


def _imagine(imagination: AmpleNodes, review: Mapping[str, Any], world: World) -> None:
    request = mapping(review.get("request"))
    namespace = Namespace(text(request.get("namespace")))
    template = read_template(mapping(request.get("object")), namespace=namespace, world=world)
    if isinstance(template, Template):
        imagination.make_room(template.pod)


def _bytes(review: Mapping[str, Any]) -> bytes:
    return json.dumps(review).encode()
