"""Answers in order.

Nodes of ample capacity for a world without nodes, such as that of `--empty`, so that only limits decide.
"""

import asyncio
import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import jsonpatch
import msgspec

from webhook.cli.review.results import Place
from webhook.core.admission.pools import allowed_pools
from webhook.core.model.amounts import Namespace, NodeName
from webhook.core.model.constraints import Constraints, Operator, Requirement
from webhook.core.model.pod import Pod
from webhook.core.world.world import World
from webhook.kube.admission.reviews import ReviewError
from webhook.kube.admission.templates import Template, read_template
from webhook.kube.kinds.model import mapping, text
from webhook.kube.nodes.nodes import to_node
from webhook.kube.objects import objects
from webhook.server.review.reviewer import AdmissionReviewer
from webhook.server.review.verdicts import MemoryLedger

_AMPLE: Final = 1_000_000_000
_PODS: Final = 1_000
"""How many pods of any size fit on an ample node: memory is counted in bytes."""


class AmpleNodes:
    """Adds an ample node for each pod in each pool that it may use, and removes those of the pods before."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._nodes: list[NodeName] = []

    def make_room(self, *pods: Pod) -> None:
        """Replace the ample nodes by nodes on which these pods fit, all in one domain of each kind."""
        for name in self._nodes:
            self._world.remove_node(name)
        self._nodes = []
        domains = [pod.gang.domain.key for pod in pods if pod.gang is not None and pod.gang.domain is not None]
        labels = dict.fromkeys(filter(None, domains), "any")
        for pod in pods:
            for pool in allowed_pools(pod, self._world.tenancy(pod.namespace).team_name, self._world).allowed:
                constraints = self._world.pools.joined(pod.constraints, pool)
                found = _node(f"any-{len(self._nodes)}", pod, constraints, labels)
                node = to_node(msgspec.convert(found, objects.Node))
                self._world.set_node(node)
                self._nodes.append(node.name)


def _node(name: str, pod: Pod, constraints: Constraints, domains: Mapping[str, str]) -> dict[str, object]:
    term = next((term for term in constraints.terms or () if term.labels or term.fields), None)
    labels = {**domains, **dict(constraints.node_selector)}
    if term is not None:
        labels |= _met(term.labels)
        name = dict(_met(term.fields)).get("metadata.name", name)
    amounts = {resource: str(max(_AMPLE, _PODS * requested)) for resource, requested in pod.demand.requests}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}}


def _met(requirements: tuple[Requirement, ...]) -> Iterator[tuple[str, str]]:
    """Yield a label for each requirement that can be met by a label."""
    for requirement in requirements:
        match requirement.operator:
            case Operator.IN if requirement.values:
                yield requirement.key, requirement.values[0]
            case Operator.EXISTS:
                yield requirement.key, ""
            case Operator.GT | Operator.LT if requirement.values and requirement.values[0].lstrip("-").isdecimal():
                step = 1 if requirement.operator is Operator.GT else -1
                yield requirement.key, str(int(requirement.values[0]) + step)


# Answers AdmissionReviews as for kube-apiserver: first by the mutating webhook, then by the validating one.


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
