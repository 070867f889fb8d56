"""The demo's output: commands that can be pasted into a shell, and only ASCII on a plain terminal."""

import io
import shlex

import pytest
from rich.console import Console
from rich.text import Text

from tests.demo.narration import WIDTH, DemoOutput


def open_output(*, encoding="utf-8"):
    written = io.BytesIO()
    file = io.TextIOWrapper(written, encoding=encoding, write_through=True)
    return DemoOutput(Console(file=file, width=WIDTH), pace_seconds=0), lambda: written.getvalue().decode(encoding)


@pytest.mark.parametrize(
    "command",
    [
        "kubectl create -n team-a -f tests/demo/pods/one.yaml",
        'kubectl patch quota share -n team-a -p \'{"spec":{"hard":{"requests.nvidia.com/gpu":"40"}}}\'',
        "helm install fairgate charts/fairgate " + " ".join(f"--set key-{number}=value" for number in range(12)),
    ],
    ids=["a short command", "a quoted word", "a long command"],
)
def test_a_long_command_can_be_copied(command):
    output, text = open_output()
    output.ran(command, "done\n")
    shown, _, result = text().strip().rpartition("\n")
    assert shlex.split(shown.removeprefix("$ ").replace("\\\n", "")) == shlex.split(command)
    assert max(map(len, shown.splitlines())) <= WIDTH
    assert result == "  done"


def test_an_ascii_terminal_gets_only_ascii():
    output, text = open_output(encoding="ascii")
    output.chapter("1. The greedy team", "A story.")
    output.part("without Fairgate")
    output.picture(Text("    node-0  A-A . ."))
    output.outcome("It waits.")
    output.summary([("1. The greedy team", "", ""), ("  asked", "waits", "runs")])
    assert "=> It waits." in text()
    assert "| 1. The greedy team |" in text()


def test_text_is_not_interpreted_as_markup():
    output, text = open_output()
    output.say("a [bold] word")
    output.list("export KUBECONFIG=[x]")
    assert text().splitlines() == ["a [bold] word", "export KUBECONFIG=[x]"]
