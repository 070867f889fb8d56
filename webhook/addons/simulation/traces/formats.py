"""Formats of traces: cells, rows, nodes.

Reads the cells of a table: numbers within bounds, times and words. What is wrong is collected, not raised.
"""

import csv
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from math import ceil, isfinite
from typing import Final, NamedTuple

from webhook.core.model.amounts import (
    CPU,
    MEMORY,
    ONE_GPU,
    PODS,
    GpuModel,
    NodeName,
    ResourceName,
    printable,
    shortened,
)
from webhook.core.model.constraints import (
    MAX_MEMBERS,
    NO_CONSTRAINTS,
    TIERS,
    Constraints,
    NodeTerm,
    Operator,
    Requirement,
    Tier,
)
from webhook.core.model.demand import Demand, PerDevice, demand_of
from webhook.core.model.node import NO_DEVICES, Devices, Node
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Policy
from webhook.core.world.world import World
from webhook.files import InputError

_LONGEST: Final = 100
_NOTHING: Final = frozenset({"none", "null", "nan"})
_LATEST: Final = 1 << 40
_DECIMAL: Final = re.compile(r"[+-]?[0-9]+([.][0-9]*)?")
_DATES: Final = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S%z")


class Cells:
    """The cells of one row by column. `problems` are those found so far, each with its column."""

    def __init__(self, cells: Mapping[str, str | None]) -> None:
        self.problems: list[str] = []
        self._cells = cells

    def text(self, column: str) -> str:
        """Return a cell without spaces around it; "" if it is empty or there is no such column."""
        return (self._cells.get(column) or "").strip()

    def number(self, column: str, *, most: int, least: int = 0, default: int | None = None) -> int:
        """Return a whole number, rounded up; `default` for an empty cell."""
        return self._scaled(column, 1, most=most, least=least, default=default)

    def thousandths(self, column: str, *, most: int, default: int | None = None) -> int:
        """Return a number in thousandths, rounded up."""
        return self._scaled(column, 1000, most=most, least=0, default=default)

    def time(self, column: str) -> int | None:
        """Return a time in seconds, from a number or a date (of UTC); None for an empty cell."""
        found = self.text(column)
        if not found or found.lower() in _NOTHING:
            return None
        number = _number(found)
        if number is not None:
            if abs(number) <= _LATEST:
                return int(number)
            return self._wrong(column, found, "a time in seconds")
        for form in _DATES:
            try:
                parsed = datetime.strptime(found, form)
            except ValueError:
                continue
            return int(parsed.replace(tzinfo=parsed.tzinfo or UTC).timestamp())
        return self._wrong(column, found, "seconds, or a date such as 2026-11-23 08:00:00")

    def _scaled(self, column: str, scale: int, *, most: int, least: int, default: int | None) -> int:
        found = self.text(column)
        if not found and default is not None:
            return default
        number = _number(found)
        if number is None:
            return self._wrong(column, found, "a number")
        if not least <= number * scale <= most:
            return self._wrong(column, found, f"a number from {least // scale:,} to {most // scale:,}")
        return ceil(number * scale)

    def _wrong(self, column: str, found: str, wanted: str) -> int:
        shown = shortened(printable(found), _LONGEST)
        self.problems.append(f"{column}: got {repr(shown) if shown else 'nothing'}; expected {wanted}")
        return 0


def _number(text: str) -> Fraction | None:
    """Parse a number exactly; None for other text, infinities included."""
    if len(text) > _LONGEST or not text.isascii():
        return None
    if _DECIMAL.fullmatch(text):
        return Fraction(text)
    try:
        number = float(text)
    except ValueError:
        return None
    return Fraction(number) if isfinite(number) else None


# A row of a trace, whatever its format: what a pod or a gang of equal pods asks for, when, and for how long.


MAX_ROWS: Final = 1_000_000
"""Rows of a trace: more are a mistake, or a trace that is to be cut first."""

MAX_SECONDS: Final = 10 * 366 * 86_400
"""The longest run, and the longest trace."""

MAX_GPUS: Final = 100_000
"""GPUs of one row."""

MAX_AMOUNT: Final = 1 << 60
"""Thousandths of cores, or bytes of memory, of one row."""


class Row(NamedTuple):
    """One row. `gpus` is for each of its `pods`; `milli` is the part of each GPU in thousandths.

    `created` and `seconds` are in seconds. Either `team` or `namespace` says whose it is; neither: it is dealt out.
    Rows of one `gang` start together, and so do the `pods` of one row if they are several. `models` are GPU models that
    it may run on, none: any. `cpu` is in thousandths of a core, `memory` in bytes. `is_job`: its GPUs may be on several
    nodes, so it becomes as many pods as it needs. `pod` is the whole pod, where the trace has it: it is what is decided
    on, and the amounts beside it only say how large the row is for a load.
    """

    line: int
    name: str
    gpus: int
    created: int
    seconds: int
    pods: int = 1
    milli: int = 1000
    team: str = ""
    namespace: str = ""
    user: str = ""
    cpu: int = 0
    memory: int = 0
    models: tuple[str, ...] = ()
    gang: str = ""
    priority: int = 0
    tier: Tier | None = None
    is_job: bool = False
    pod: Pod | None = None


class TraceRows(NamedTuple):
    """The rows of a trace, and how many of its tasks were left out, by the reason in words."""

    rows: list[Row]
    left_out: Mapping[str, int]


class TraceError(InputError):
    """A trace cannot be used: each of `problems` has file, line, what is wrong and what was expected."""


# The formats of traces, recognized by their columns: Fairgate's own, openb's (Alibaba), and that of Helios.


_MIB: Final = 1 << 20
_SUFFIXES: Final = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_PRIORITY: Final = 2_000_000_000
_WHOLE: Final = 1000


class Format(NamedTuple):
    """A format: the columns without which it cannot be read, those of times, and how a row is read."""

    name: str
    columns: tuple[str, ...]
    times: tuple[str, ...]
    read: Callable[[Cells, int], Row]


def recognized(columns: Collection[str]) -> Format | None:
    """Return the format that a header is of, by the columns that no other format has; None for another table."""
    return next((each for each in FORMATS if _MARKS[each.name] <= set(columns)), None)


def _plain(cells: Cells, line: int) -> Row:
    tier = cells.text("tier")
    if tier and tier not in TIERS:
        cells.problems.append(f"tier: got {tier[:20]!r}; expected {' or '.join(Tier)}")
    return Row(
        line,
        cells.text("name") or f"task-{line}",
        cells.number("gpus", most=MAX_GPUS),
        cells.time("created") or 0,
        cells.number("seconds", most=MAX_SECONDS),
        pods=cells.number("pods", least=1, most=MAX_MEMBERS, default=1),
        milli=cells.number("gpu_milli", least=1, most=_WHOLE, default=_WHOLE),
        team=cells.text("team"),
        namespace=cells.text("namespace"),
        user=cells.text("user"),
        cpu=cells.thousandths("cpu", most=MAX_AMOUNT, default=0),
        memory=_memory(cells),
        models=_words(cells.text("model")),
        gang=cells.text("gang"),
        priority=cells.number("priority", least=-_PRIORITY, most=_PRIORITY, default=0),
        tier=TIERS.get(tier),
    )


def _memory(cells: Cells) -> int:
    """Return bytes; a cell may end with Mi or Gi, as in Kubernetes."""
    text = cells.text("memory")
    unit = _SUFFIXES.get(text[-2:], 1)
    if unit == 1:
        return cells.number("memory", most=MAX_AMOUNT, default=0)
    scaled = Cells({"memory": text[:-2]})
    amount = scaled.number("memory", most=MAX_AMOUNT // unit) * unit
    cells.problems += scaled.problems
    return amount


def _openb(cells: Cells, line: int) -> Row:
    created, begun, ended = (cells.time(each) for each in ("creation_time", "scheduled_time", "deletion_time"))
    gpus = cells.number("num_gpu", most=MAX_GPUS)
    return Row(
        line,
        cells.text("name") or f"task-{line}",
        gpus,
        created or 0,
        _between(cells, created, begun, ended),
        milli=cells.number("gpu_milli", least=0, most=_WHOLE) or _WHOLE if gpus else _WHOLE,
        cpu=cells.number("cpu_milli", most=MAX_AMOUNT, default=0),
        memory=cells.number("memory_mib", most=MAX_AMOUNT // _MIB, default=0) * _MIB,
        models=_words(cells.text("gpu_spec")),
    )


def _between(cells: Cells, created: int | None, begun: int | None, ended: int | None) -> int:
    """Return how long a task ran; its times must not run backwards."""
    if created is None and begun is None and ended is None:
        return 0  # a task without times, for a load that draws them
    if created is None or ended is None:
        cells.problems.append("creation_time and deletion_time: got nothing; expected times in seconds")
        return 0
    begun = created if begun is None else begun
    if not created <= begun <= ended:
        cells.problems.append(
            f"times run backwards: created {created}, scheduled {begun}, deleted {ended}; expected this order"
        )
        return 0
    return ended - begun


def _helios(cells: Cells, line: int) -> Row:
    created, begun, ended = (cells.time(each) for each in ("submit_time", "start_time", "end_time"))
    seconds = cells.number("duration", most=MAX_SECONDS)
    if begun is not None and ((created is not None and begun < created) or (ended is not None and ended < begun)):
        cells.problems.append("times run backwards; expected submit_time, start_time and end_time in this order")
    return Row(
        line,
        cells.text("job_id") or f"job-{line}",
        cells.number("gpu_num", most=MAX_GPUS),
        created or 0,
        seconds,
        team=cells.text("vc"),
        user=cells.text("user"),
        is_job=True,
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split("|") if word.strip())


FORMATS: Final = (
    Format("openb", ("name", "num_gpu", "gpu_milli"), ("creation_time", "deletion_time"), _openb),
    Format("Helios", ("job_id", "gpu_num", "duration"), ("submit_time",), _helios),
    Format("Fairgate", ("gpus", "seconds"), ("created",), _plain),
)
_MARKS: Final = {"openb": {"num_gpu"}, "Helios": {"gpu_num"}, "Fairgate": {"gpus"}}


# Nodes from a table: openb's list of nodes, or `name,gpus[,model,cpu,memory,count]`.


MAX_NODES: Final = 100_000
MAX_NODE_GPUS: Final = 1024
"""GPUs of one node."""

_CPU: Final = 128_000
_MEMORY: Final = 2 << 40
"""The size of nodes whose table does not say it: enough for any pod that asks for GPUs."""


class NodeRow(NamedTuple):
    """A node: cpu in thousandths of a core, memory in bytes."""

    name: str
    gpus: int
    model: str = ""
    cpu: int = _CPU
    memory: int = _MEMORY


def read_nodes(lines: Iterable[str], *, name: str) -> list[NodeRow]:
    """Read a table of nodes. Raises TraceError."""
    reader = csv.DictReader(lines, strict=True)
    try:
        columns = [column.strip().lstrip("\ufeff") for column in reader.fieldnames or ()]
        reader.fieldnames = columns
        if not ({"sn", "gpu"} <= set(columns) or {"name", "gpus"} <= set(columns)):
            wanted = "name, gpus[, model, cpu, memory, count], or sn, gpu, model, cpu_milli, memory_mib as in openb"
            raise TraceError(f"{name}:1: not a table of nodes; expected the columns {wanted}")
        rows = list(_rows(reader, name))
    except (csv.Error, UnicodeDecodeError) as error:
        raise TraceError(f"{name}:{reader.line_num + 1}: not a table: {error}") from error
    if not any(row.gpus for row in rows):
        raise TraceError(f"{name}: has no node with GPUs")
    return rows


def _rows(reader: "csv.DictReader[str]", name: str) -> Iterator[NodeRow]:
    seen: set[str] = set()
    for cells_of in reader:
        cells = Cells(cells_of)
        for row in _read(cells):
            if row.name in seen:
                cells.problems.append(f"a second node {row.name}")
            seen.add(row.name)
            if len(seen) > MAX_NODES:
                cells.problems.append(f"more than {MAX_NODES:,} nodes")
            if cells.problems:
                break
            yield row
        if cells.problems:
            raise TraceError(*(f"{name}:{reader.line_num}: {problem}" for problem in cells.problems))


def _read(cells: Cells) -> Iterator[NodeRow]:
    if cells.text("sn"):
        cpu = cells.number("cpu_milli", most=MAX_AMOUNT, default=_CPU)
        memory = cells.number("memory_mib", most=MAX_AMOUNT // _MIB, default=_MEMORY // _MIB) * _MIB
        yield NodeRow(cells.text("sn"), cells.number("gpu", most=MAX_NODE_GPUS), cells.text("model"), cpu, memory)
        return
    name, gpus = cells.text("name"), cells.number("gpus", most=MAX_NODE_GPUS)
    cpu = cells.thousandths("cpu", most=MAX_AMOUNT, default=_CPU // 1000)
    cpu = cpu if cells.text("cpu") else _CPU
    memory = cells.number("memory", most=MAX_AMOUNT, default=_MEMORY)
    count = cells.number("count", least=1, most=MAX_NODES, default=1)
    if not name:
        cells.problems.append("name: got nothing; expected the name of a node")
    for number in range(count):
        yield NodeRow(name if count == 1 else f"{name}-{number:05}", gpus, cells.text("model"), cpu, memory)


# Nodes and pods of a trace in the terms of a policy: how GPUs are asked for, and which nodes have them.


GPU: Final = ResourceName("nvidia.com/gpu")
SHARE: Final = ResourceName("fairgate.dev/simulated-gpu-milli")
"""Thousandths of a GPU, on nodes of a table where tasks take parts of GPUs."""

MODEL: Final = "nvidia.com/gpu.product"
_PODS: Final = 250


def with_shares(policy: Policy) -> Policy:
    """Return a policy that counts thousandths of GPUs."""
    return replace(policy, resources={**policy.resources, SHARE: ONE_GPU // _WHOLE, GPU: ONE_GPU})


def nodes_of(rows: Iterable[NodeRow], *, is_shared: bool) -> list[Node]:
    """Return the nodes of a table; with `is_shared` their GPUs are given out in thousandths."""
    return [_node(row, is_shared=is_shared) for row in rows]


def _node(row: NodeRow, *, is_shared: bool) -> Node:
    gpus = {SHARE: _WHOLE * row.gpus} if is_shared else {GPU: row.gpus}
    labels = {"kubernetes.io/hostname": row.name}
    return Node(
        NodeName(row.name),
        {CPU: row.cpu, MEMORY: row.memory, PODS: _PODS, **gpus} if row.gpus else {CPU: row.cpu, MEMORY: row.memory},
        labels={**labels, MODEL: row.model} if row.model else labels,
        model=GpuModel(row.model),
        model_label=MODEL if row.model else "",
        devices=Devices(SHARE, (_WHOLE,) * row.gpus) if is_shared and row.gpus else NO_DEVICES,
    )


class Site(NamedTuple):
    """How pods ask for GPUs in a world: by which resource, on nodes of how many GPUs at most, with which models."""

    resource: ResourceName
    largest: int
    models: dict[str, str]

    @classmethod
    def of(cls, world: World) -> "Site | None":
        """Return the site of a world; None where no node has GPUs."""
        pieces: dict[ResourceName, int] = {}
        largest: dict[ResourceName, int] = {}
        for node in world.fleet.nodes():
            for offer in node.offers(world.policy.resources):
                pieces[offer.resource] = pieces.get(offer.resource, 0) + offer.pieces
                largest[offer.resource] = max(largest.get(offer.resource, 0), offer.pieces)
        if not pieces:
            return None
        resource = max(pieces, key=lambda each: (pieces[each], each))
        models = {str(model): label for (model, label) in world.fleet.by_model() if model}
        per_gpu = _WHOLE if resource == SHARE else 1
        return cls(resource, largest[resource] // per_gpu, models)

    def demand(self, row: Row, *, gpus: int, pods: int, world: World) -> Demand:
        """Return the demand of one of the pods that a row is split into."""
        requests = {PODS: 1}
        if row.cpu:
            requests[CPU] = -(-row.cpu // pods)
        if row.memory:
            requests[MEMORY] = -(-row.memory // pods)
        ask = None
        if gpus and self.resource == SHARE:
            requests[SHARE] = gpus * row.milli
            ask = PerDevice(SHARE, row.milli, gpus)
        elif gpus:
            requests[self.resource] = gpus
        return demand_of(requests, world.policy.resources, per_device=ask)

    def constraints(self, models: Sequence[str]) -> Constraints:
        """Return the constraints of a pod that may run on these models."""
        if not models:
            return NO_CONSTRAINTS
        labels = sorted({self.models[model] for model in models})
        terms = (
            NodeTerm((Requirement(label, Operator.IN, tuple(m for m in models if self.models[m] == label)),))
            for label in labels
        )
        return Constraints(terms=tuple(terms))
