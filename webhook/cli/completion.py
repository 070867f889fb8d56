"""`kubectl_complete-fairgate`: kubectl asks it what may follow on `kubectl fairgate …`, and tells the shell."""

import sys
from typing import Final

import click
from click.shell_completion import ShellComplete

from webhook.cli.main import main

# What kubectl is to do besides, by the numbers of cobra's ShellCompDirective.
_FILES: Final = 0
_NOTHING: Final = 4
_FOLDERS: Final = 16


def kubectl_complete() -> None:
    """Print a completion per line, with its help after a tab, and what else to offer in the last line."""
    *words, incomplete = sys.argv[1:] or [""]
    directive = _NOTHING
    for item in ShellComplete(main, {}, "kubectl fairgate", "").get_completions(words, incomplete):
        match item.type:
            case "file":
                directive = _FILES
            case "dir":
                directive = _FOLDERS
            case _:
                click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(f":{directive}")
