"""Answers AdmissionReviews as for kube-apiserver: first by the mutating webhook, then by the validating one."""

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
from webhook.kube.kinds.model import mapping, text
from webhook.server.review.memory_ledger import MemoryLedger
from webhook.server.review.reviewer import AdmissionReviewer
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
    """Answer the reviews in order, each charged before the next; `on_problem` receives those that are malformed."""
    reviewer = AdmissionReviewer(
        world,
        MemoryLedger(world, lambda: 0.0),
        now_text=lambda: now_text,
    )
    ample_nodes = None if room_is_known else AmpleNodes(world)
    answers = []
    for place, review in reviews:
        if ample_nodes is not None:
            _prepare(ample_nodes, review, world)
        try:
            answers.append(asyncio.run(_answer(reviewer, review)))
        except ReviewError as error:
            on_problem(place, error.text)
    return answers


async def _answer(reviewer: AdmissionReviewer, review: Mapping[str, Any]) -> dict[str, Any]:
    """Call both webhooks; the response has the patch and warnings of the first, or the refusal of either."""
    request = mapping(review.get("request"))
    if mapping(request.get("object")).get("kind", "Pod") != "Pod":
        workload: dict[str, Any] = json.loads(reviewer.workloads(_bytes(review)).body)
        return workload
    mutated: dict[str, Any] = json.loads(reviewer.mutate(_bytes(review)).body)
    if not mutated["response"]["allowed"]:
        return mutated
    if "patch" in mutated["response"]:
        patch = json.loads(base64.b64decode(mutated["response"]["patch"]))
        request = {**request, "object": jsonpatch.apply_patch(request["object"], patch)}
    answer = await reviewer.validate(_bytes({**review, "request": request}), deadline=_NO_DEADLINE)
    validated: dict[str, Any] = json.loads(answer.body)
    return mutated if validated["response"]["allowed"] else validated


def _prepare(ample_nodes: AmpleNodes, review: Mapping[str, Any], world: World) -> None:
    request = mapping(review.get("request"))
    namespace = Namespace(text(request.get("namespace")))
    template = read_template(mapping(request.get("object")), namespace=namespace, world=world)
    if isinstance(template, Template):
        ample_nodes.make_room(template.pod)


def _bytes(review: Mapping[str, Any]) -> bytes:
    return json.dumps(review).encode()
