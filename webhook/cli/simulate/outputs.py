"""Writes results as files: tables and samples as CSV, plots as SVG, everything as one HTML page."""

import csv
from collections.abc import Iterable
from pathlib import Path

import msgspec

from webhook.cli.simulate.page import plots_of, to_html
from webhook.cli.simulate.results import GroupReport, SimulationReport
from webhook.simulation.summary import Interval


def write_outputs(report: SimulationReport, *, page: Path | None, folder: Path | None, source: str) -> None:
    """Write the files that were asked for. Raises OSError."""
    if folder is not None:
        write_csv(report, folder)
        for plot in plots_of(report):
            (folder / f"{plot.name}.svg").write_text(plot.svg, encoding="utf-8")
    if page is not None:
        page.write_text(to_html(report, source=source), encoding="utf-8")


def write_csv(report: SimulationReport, folder: Path) -> None:
    """Write `groups.csv` and `samples.csv` into a folder. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = [each.encode_name for each in msgspec.structs.fields(GroupReport)][1:]
    head = ["policy", "kind", "group", *(f"{name}{part}" for name in fields for part in ("", "Margin"))]
    groups = (
        [policy.policy, kind, each.group, *_cells(each)]
        for policy in report.policies
        for kind, found in (("total", [policy.total]), ("team", policy.teams), ("size", policy.sizes))
        for each in found
    )
    _write(folder / "groups.csv", head, groups)
    samples = [
        {"policy": policy.policy, **msgspec.to_builtins(each)} for policy in report.policies for each in policy.samples
    ]
    if samples:
        _write(folder / "samples.csv", list(samples[0]), (list(each.values()) for each in samples))


def _cells(group: GroupReport) -> Iterable[object]:
    for each in msgspec.structs.astuple(group)[1:]:
        is_known = isinstance(each, Interval)
        yield each.mean if is_known else ""
        yield each.margin if is_known and each.margin is not None else ""


def _write(path: Path, head: list[str], rows: Iterable[Iterable[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)
