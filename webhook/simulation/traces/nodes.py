"""Nodes from a table: openb's list of nodes, or `name,gpus[,model,cpu,memory,count]`."""

import csv
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from webhook.simulation.traces.cells import Cells
from webhook.simulation.traces.row import MAX_AMOUNT, TraceError

MAX_NODES: Final = 100_000
MAX_GPUS: Final = 1024
"""GPUs of one node."""

_MIB: Final = 1 << 20
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
        yield NodeRow(cells.text("sn"), cells.number("gpu", most=MAX_GPUS), cells.text("model"), cpu, memory)
        return
    name, gpus = cells.text("name"), cells.number("gpus", most=MAX_GPUS)
    cpu = cells.thousandths("cpu", most=MAX_AMOUNT, default=_CPU // 1000)
    cpu = cpu if cells.text("cpu") else _CPU
    memory = cells.number("memory", most=MAX_AMOUNT, default=_MEMORY)
    count = cells.number("count", least=1, most=MAX_NODES, default=1)
    if not name:
        cells.problems.append("name: got nothing; expected the name of a node")
    for number in range(count):
        yield NodeRow(name if count == 1 else f"{name}-{number:05}", gpus, cells.text("model"), cpu, memory)
