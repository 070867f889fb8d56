"""Writes results as files: tables and samples as CSV, plots as SVG, everything as one HTML page."""

import csv
from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path

import msgspec

from webhook.cli.output import make_folder, write_file
from webhook.cli.simulate.page import plots_of, to_html
from webhook.cli.simulate.results import GroupReport, SimulationReport
from webhook.simulation.summary import Interval


def write_outputs(
    report: SimulationReport, *, page: Path | None, folder: Path | None, source: str, made: str
) -> list[Path]:
    """Write the files that were asked for, and return them. Raises UnwrittenError."""
    files: dict[Path, str] = {}
    if folder is not None:
        make_folder(folder)
        files |= {folder / name: text for name, text in _tables(report)}
        files |= {folder / f"{plot.name}.svg": plot.svg for plot in plots_of(report)}
    if page is not None:
        files[page] = to_html(report, source=source, made=made)
    for path, text in files.items():
        write_file(path, text)
    return list(files)


def _tables(report: SimulationReport) -> Iterator[tuple[str, str]]:
    """Yield the names of the tables, and what they have."""
    fields = [each.encode_name for each in msgspec.structs.fields(GroupReport)][1:]
    head = ["policy", "kind", "group", *(f"{name}{part}" for name in fields for part in ("", "Margin"))]
    groups = (
        [policy.policy, kind, each.group, *_cells(each)]
        for policy in report.policies
        for kind, found in (("total", [policy.total]), ("team", policy.teams), ("size", policy.sizes))
        for each in found
    )
    yield "groups.csv", _csv(head, groups)
    samples = [
        {"policy": policy.policy, **msgspec.to_builtins(each)} for policy in report.policies for each in policy.samples
    ]
    if samples:
        yield "samples.csv", _csv(list(samples[0]), (list(each.values()) for each in samples))


def _cells(group: GroupReport) -> Iterable[object]:
    for each in msgspec.structs.astuple(group)[1:]:
        is_known = isinstance(each, Interval)
        yield each.mean if is_known else ""
        yield each.margin if is_known and each.margin is not None else ""


def _csv(head: list[str], rows: Iterable[Iterable[object]]) -> str:
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return file.getvalue()
