"""What the gate would tell the pods of one template, one after another, without asking anybody. Pure.

The same steps as for a live pod: judge, patch, judge the patched pod again, charge. Equal pods get equal answers until
something runs out, so that not each of ten thousand has to be asked.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, assert_never

import msgspec

from webhook.core.admission.admission import admit
from webhook.core.admission.resolve_demand import as_created
from webhook.core.admission.verification import verify
from webhook.core.model.amount import Units
from webhook.core.model.decision import Admit, Charge, Decision, Deny, NotApplicable, Retry
from webhook.core.model.names import Namespace, NodeName, Uid
from webhook.core.model.pod import Pod, Requester
from webhook.core.model.reason import Code, Reason
from webhook.core.quota.charged_pod import flight_of
from webhook.core.world.world import World
from webhook.kube.admission.pod_patch import apply, node_choice_operations, operations
from webhook.kube.objects import objects
from webhook.kube.pod.pods import InvalidPod, to_pod

_pod_decoder: Final = msgspec.json.Decoder(objects.Pod)


@dataclass(frozen=True, slots=True)
class Answer:
    """What so many equal pods are told. `patched` is the first of them as it would be stored."""

    decision: Decision
    count: int
    node: NodeName | None = None
    patched: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """A pod as its controller would create it: as written, and as a decision reads it."""

    written: Mapping[str, Any]
    found: objects.Pod
    pod: Pod


def read_template(written: Mapping[str, Any], *, namespace: Namespace, world: World) -> Template | Deny:
    """Read a template; a Deny says why the API server or the gate would not even take it for a pod."""
    try:
        found = _pod_decoder.decode(msgspec.json.encode(written))
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError, TypeError) as error:
        return Deny((Reason(Code.INVALID_REQUEST, objects.describe(error)),))
    pod = to_pod(found, namespace=namespace, weights=world.policy.resources)
    if isinstance(pod, InvalidPod):
        return Deny(pod.reasons)
    return Template(written, found, as_created(pod, world.policy))


class Foreteller:
    """Asks for pods that do not exist, and remembers what was promised to those before."""

    def __init__(self, world: World, *, now_text: str) -> None:
        self.world = world
        self.taken: list[Uid] = []
        self._now_text = now_text
        self._number = 0

    def foretell(self, template: Template, count: int, *, requester: Requester) -> Iterator[Answer]:
        """Yield what `count` equal pods are told, in order; each run of answers is charged before the next."""
        asking = _Asking(template, requester)
        left = count
        while left:
            decision = self._decide(asking)
            if isinstance(decision, Deny | Retry) or decision.charge is None:  # nothing was taken: all hear the same
                yield asking.answer(decision, left)
                return
            pod = asking.stored(decision)
            node = pod.node_name or _chosen(decision)
            self._take(pod, decision.charge, node, times=1)
            differs = node is not None or pod.claims  # in room, or in who pays for a claim that they share
            alike = 0 if differs else self._take_alike(asking, decision, decision.charge, left - 1)
            yield asking.answer(decision, 1 + alike, node)
            left -= 1 + alike

    def _decide(self, asking: "_Asking") -> Decision:
        """Judge, and hold the patched pod against /validate's rules wherever it could fare unlike the one before."""
        template, world = asking.template, self.world
        decision = admit(template.pod, asking.requester, world)
        if not isinstance(decision, Admit):
            return decision
        terms = _Terms.of(decision)
        if terms in asking.patched:
            return decision
        patched = apply(template.written, operations(template.found, decision, now_text=self._now_text))
        again = read_template(patched, namespace=template.pod.namespace, world=world)
        if isinstance(again, Deny):
            return again
        committed = verify(again.pod._replace(uid=self._next_uid()), asking.requester, world)
        if not isinstance(committed, Admit):
            return committed
        asking.patched[terms] = _Stored(patched, again.pod)
        return decision

    def _take_alike(self, asking: "_Asking", decision: Admit | NotApplicable, charge: Charge, left: int) -> int:
        """Charge as many further pods as are told the same, found by halving, and tell how many.

        No room changes while no pod gets a node, and sums only grow: if the last of many is told what the first was
        told, so are those between.
        """
        size, pod = left, asking.stored(decision)
        while size:
            before = self._take(pod, charge, None, times=size - 1) if size > 1 else None
            if _is_alike(self._decide(asking), decision):
                self._take(pod, charge, None, times=1)
                return size
            if before is not None:
                self.world.settle(before)
                self.taken.pop()
            size //= 2
        return 0

    def _take(self, pod: Pod, charge: Charge, node: NodeName | None, *, times: int) -> Uid:
        uid = self._next_uid()
        charged = charge._replace(gpus=charge.gpus * times)
        nodes = () if node is None else (node,)
        self.world.assume(flight_of(pod._replace(uid=uid), charged, nodes=nodes, is_watched=False))
        self.taken.append(uid)
        return uid

    def _next_uid(self) -> Uid:
        self._number += 1
        return Uid(f"foretold/{self._number}")


class _Terms(NamedTuple):
    """What a decision writes on a pod, but for the names of the nodes."""

    tier: str
    code: str
    mode: str
    pool: str | None
    model: str | None
    gpus: Units
    has_nodes: bool

    @classmethod
    def of(cls, decision: Admit) -> "_Terms":
        charge, steering = decision.charge, decision.steering
        return cls(
            charge.tier,
            decision.reason.code,
            steering.mode,
            steering.pool,
            charge.model,
            charge.gpus,
            bool(steering.nodes),
        )


class _Stored(NamedTuple):
    """A pod after the patch: as written, and as a decision reads it."""

    written: Mapping[str, Any]
    pod: Pod


class _Asking:
    """One template being asked about; `patched` has the first pod that was admitted on each terms."""

    def __init__(self, template: Template, requester: Requester) -> None:
        self.template = template
        self.requester = requester
        self.patched: dict[_Terms, _Stored] = {}

    def answer(self, decision: Decision, count: int, node: NodeName | None = None) -> Answer:
        """Return what so many of its pods are told."""
        return Answer(decision, count, node, self._patched(decision))

    def stored(self, decision: Admit | NotApplicable) -> Pod:
        """Return one of its pods as it would be stored, but for the names of the nodes."""
        return self.patched[_Terms.of(decision)].pod if isinstance(decision, Admit) else self.template.pod

    def _patched(self, decision: Decision) -> Mapping[str, Any] | None:
        if isinstance(decision, Admit):
            return self.patched[_Terms.of(decision)].written
        if isinstance(decision, NotApplicable) and decision.steering is not None:
            return apply(self.template.written, node_choice_operations(self.template.found, decision.steering))
        return None


def _is_alike(one: Decision, other: Decision) -> bool:
    match one, other:
        case Admit(), Admit():
            return _Terms.of(one) == _Terms.of(other) and not one.steering.nodes
        case NotApplicable(), NotApplicable():
            return one.reason == other.reason
        case _:
            return False


def _chosen(decision: Admit | NotApplicable) -> NodeName | None:
    match decision:
        case Admit(steering=steering):
            return steering.nodes[0] if steering.nodes else None
        case NotApplicable():
            return None
        case _ as never:
            assert_never(never)
