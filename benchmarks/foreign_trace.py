"""Writes published GPU traces as tables that `fairgate simulate --trace` and `--world` read.

Run it from the repository's root: `python benchmarks/foreign_trace.py FILE > tasks.csv`. It reads, by their columns,

- openb, tasks and nodes (Alibaba, 2023, cluster-trace-gpu-v2023): `num_gpu`, `sn`;
- Helios (SenseTime, 2020, HeliosArtifact): `gpu_num`;
- Philly (Microsoft, 2017, philly-traces): the JSON list `cluster_job_log`.

A job of Helios or Philly that is larger than a node (--node-gpus) becomes pods of equal size that start together. Jobs
without GPUs, and of Philly those that never ran, are left out.
"""

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

NODE_COLUMNS = ("name", "gpus", "model", "cpu", "memory")
TASK_COLUMNS = ("name", "team", "user", "gpus", "gpu_milli", "created", "seconds", "cpu", "memory", "model", "pods")

Cells = Mapping[str, str]
Row = dict[str, object]


def own_table(file: TextIO, *, node_gpus: int = 8) -> Iterator[str]:
    """Yield the lines of Fairgate's own table. Raises ValueError for a file of no known format."""
    if (first := file.read(1)) in ("[", "{"):
        yield from _lines(TASK_COLUMNS, _philly(json.loads(first + file.read()), node_gpus))
        return
    head = first + file.readline()
    columns = next(csv.reader([head]))
    cells = csv.DictReader(file, columns)
    if "num_gpu" in columns:
        yield from _lines(TASK_COLUMNS, map(_openb_task, cells))
    elif "sn" in columns:
        yield from _lines(NODE_COLUMNS, map(_openb_node, cells))
    elif "gpu_num" in columns:
        yield from _lines(TASK_COLUMNS, _helios(cells, node_gpus))
    else:
        raise ValueError(f"the columns are of no known trace: {head.strip()[:200]!r}")


def _lines(columns: tuple[str, ...], rows: Iterable[Row]) -> Iterator[str]:
    line = io.StringIO()
    writer = csv.DictWriter(line, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        yield line.getvalue()
        line.seek(0)
        line.truncate()
        writer.writerow(row)
    yield line.getvalue()


def _openb_node(cells: Cells) -> Row:
    amounts = _amounts(cells)
    return {"name": cells["sn"], "gpus": cells["gpu"], "model": cells.get("model", ""), **amounts}


def _openb_task(cells: Cells) -> Row:
    begun = cells.get("scheduled_time") or cells.get("creation_time")
    ended = cells.get("deletion_time")
    gpus = int(cells["num_gpu"])
    return {
        "name": cells["name"],
        "gpus": gpus,
        "gpu_milli": int(cells["gpu_milli"] or 0) or 1000 if gpus else 1000,
        "created": cells.get("creation_time") or "",
        "seconds": round(float(ended) - float(begun)) if begun and ended else "",
        "model": cells.get("gpu_spec") or "",
        **_amounts(cells),
    }


def _amounts(cells: Cells) -> Row:
    cpu, memory = cells.get("cpu_milli"), cells.get("memory_mib")
    return {"cpu": int(cpu) / 1000 if cpu else "", "memory": f"{memory}Mi" if memory else ""}


def _helios(table: Iterable[Cells], node_gpus: int) -> Iterator[Row]:
    for cells in table:
        if gpus := int(cells["gpu_num"]):
            job = {"name": cells["job_id"], "team": cells["vc"], "user": cells["user"]}
            times = {"created": cells["submit_time"], "seconds": cells["duration"]}
            yield {**job, **times, **_split(gpus, node_gpus)}


def _philly(jobs: list[dict[str, Any]], node_gpus: int) -> Iterator[Row]:
    for job in jobs:
        ran = [each for each in job.get("attempts", ()) if each.get("start_time") and each.get("end_time")]
        seconds = sum(_seconds(each["start_time"], each["end_time"]) for each in ran)
        counts = [sum(len(part.get("gpus", ())) for part in each.get("detail", ())) for each in ran]
        if gpus := next((count for count in reversed(counts) if count), 0):
            names = {"name": job["jobid"], "team": job["vc"], "user": job["user"]}
            yield {**names, "created": job["submitted_time"], "seconds": seconds, **_split(gpus, node_gpus)}


def _seconds(begun: str, ended: str) -> int:
    return round((datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds())


def _split(gpus: int, node_gpus: int) -> Row:
    pods = -(-gpus // node_gpus)
    return {"gpus": -(-gpus // pods), "pods": pods}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, help="a file of a published trace")
    parser.add_argument("--node-gpus", type=int, default=8, help="GPUs of a node (default 8)")
    options = parser.parse_args()
    with options.trace.open(newline="") as file:
        sys.stdout.writelines(own_table(file, node_gpus=options.node_gpus))


if __name__ == "__main__":
    main()
