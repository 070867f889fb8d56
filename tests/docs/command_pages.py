"""Generates reference pages: every command with its options, and the JSON Schemas of their output.

`python -m tests.docs.command_pages DIR` writes them; a test compares them with those in docs/.
"""

import inspect
import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from textwrap import dedent
from typing import Final

import click

from webhook.addons.history.usage.report import UsageReport
from webhook.addons.moves.run import DefragmentReport
from webhook.addons.simulation.replay.recorded import ReplayReport
from webhook.addons.simulation.simulate.results import SimulationReport
from webhook.cli import codes
from webhook.cli.bypassed import BypassedReport
from webhook.cli.doctor.run import DoctorReport
from webhook.cli.explain.report import ExplanationReport
from webhook.cli.main import main
from webhook.cli.output import schema_of
from webhook.cli.policy_diff import DiffReport
from webhook.cli.queue.run import QueueReport
from webhook.cli.review.run import ReviewReport
from webhook.cli.status.report import StatusReport
from webhook.cli.uninstall import UninstallReport

_HEAD = """# Command line

Every command with its options, from the code (`make docs`). `--help` of a command says more.
A shell completes commands, options and formats after
```sh
eval "$(_FAIRGATE_COMPLETE=bash_source fairgate)"   # or zsh_source, fish_source
```
As a kubectl plugin they are completed like kubectl's own commands (`source <(kubectl completion bash)`, since
kubectl 1.26): the package installs the executable `kubectl_complete-fairgate`, which kubectl finds in `PATH`.

## Shared options
A command that takes some of these names them after "Also".

"""
_SHARED_BY: Final = 2
"""Options with one meaning in as many commands are described once."""


_CODES: Final = """# Reason codes

Every answer has one of these codes. They are stable: alerts and scripts may rely on them.
[Using GPUs](../tasks/users.md) says what the owner of a pod can do. Generated from `webhook/cli/codes.json` by
`make docs`.

"""
_GROUPS: Final = {
    "Limits": "Text starts with `exceeded quota:`, on which Argo, Flyte and others retry, and names the largest users.",
    "Other refusals": "HTTP 403, for good.",
    "Asked again": "Answered with 429: clients repeat the request.",
    "Admitted": "The pod is created; with a gate where it waits.",
    "Not decided": "Fairgate leaves these alone, or counts them only.",
    "Warnings": "The pod is admitted.",
    "Of workloads as a whole": "They also get the codes of limits and `NeverFits`, as warnings.",
    "Of manifests": "`fairgate review` could not judge them.",
}
_DATA: Final = {
    "bypassed": BypassedReport,
    "defragment": DefragmentReport,
    "doctor": DoctorReport,
    "explain": list[ExplanationReport],
    "policy-diff": DiffReport,
    "queue": QueueReport,
    "replay": ReplayReport,
    "review": ReviewReport,
    "simulate": SimulationReport,
    "status": StatusReport,
    "uninstall": UninstallReport,
    "usage": UsageReport,
}
"""The JSON output of commands."""


def pages() -> dict[str, str]:
    """Return every page by its name."""
    found = list(_commands(("fairgate",), main))
    times = Counter(record for _, command in found for record in _records(command))
    most = {record[0].split()[0]: record for record, _ in reversed(times.most_common())}
    shared = [
        record for record, number in times.items() if number >= _SHARED_BY and most[record[0].split()[0]] == record
    ]
    commands = "\n".join(_section(path, command, shared) for path, command in found)
    schemas = {f"{name}.schema.json": f"{json.dumps(schema_of(data), indent=2)}\n" for name, data in _DATA.items()}
    return {"cli.md": f"{_HEAD}{_options(shared)}\n\n{commands}", "codes.md": _codes()} | schemas


def _commands(path: tuple[str, ...], command: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from _commands((*path, name), found)


def _section(path: tuple[str, ...], command: click.Command, shared: list[tuple[str, str]]) -> str:
    name = " ".join(path)
    pieces = command.collect_usage_pieces(click.Context(command, info_name=name))[1:]
    usage = f"```\n{' '.join((name, *pieces))}\n```" if pieces else ""
    records = _records(command)
    also = ", ".join(f"`{option.split()[0].rstrip(',')}`" for option, text in records if (option, text) in shared)
    options = _options([each for each in records if each not in shared])
    parts = [
        f"## {name}",
        inspect.cleandoc(command.help or "").partition("\n\n")[0],
        usage,
        options,
        also and f"Also: {also}.",
    ]
    epilog = _epilog(command.epilog or "") if path[1:] else ()  # that of the program lists its commands
    return "\n\n".join(filter(None, [*parts, *epilog])) + "\n"


def _records(command: click.Command) -> list[tuple[str, str]]:
    """Return the options of a command but `--help`, each with its meaning."""
    context = click.Context(command, show_default=True)  # as of every command of options
    records = [param.get_help_record(context) for param in command.params]
    return [(option, text) for option, text in filter(None, records) if text]


def _options(records: list[tuple[str, str]]) -> str:
    rows = [f"| `{_cell(option)}` | {_cell(text)} |" for option, text in records]
    return "\n".join(("| option | meaning |", "|---|---|", *rows)) if rows else ""


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _epilog(text: str) -> Iterator[str]:
    """Yield the parts below a command's help: examples as shell blocks, the rest unchanged."""
    for block in text.split("\b\n"):
        head, _, rest = block.strip().partition("\n")
        if head == "Examples:":
            yield f"```sh\n{dedent(rest)}\n```"
        elif head.endswith(":"):
            yield f"{head}\n```\n{dedent(rest)}\n```"
        elif head:
            yield f"{head}\n{dedent(rest)}".strip()


def _codes() -> str:
    """Return the page of reason codes, from codes.json."""
    parts = [_CODES]
    shown = json.loads((Path(codes.__file__).with_name(codes.FILE_NAME)).read_text())
    for group, each in groupby(shown.items(), key=lambda item: item[1]["group"]):
        parts.append(f"## {group}\n{_GROUPS[group]}\n\n| code | cause | remedy |\n|---|---|---|\n")
        parts += [f"| `{code}` | {found['cause']} | {found['remedy']} |\n" for code, found in each]
        parts.append("\n")
    return "".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    for name, text in pages().items():
        (Path(sys.argv[1]) / name).write_text(text)
