"""`kubectl_complete-fairgate`: kubectl calls it to complete `kubectl fairgate …`."""

import sys
from typing import Final

import click
from click.shell_completion import ShellComplete

from webhook.cli.main import main

# Further completions that kubectl offers, as numbers of cobra's ShellCompDirective.
_FILES: Final = 0
_NOTHING: Final = 4
_FOLDERS: Final = 16


def kubectl_complete() -> None:
    """Print one completion per line, with its help after a tab; the last line has the directive."""
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
