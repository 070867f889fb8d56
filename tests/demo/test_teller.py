"""What the demo writes: commands that a shell takes as they stand, and nothing a plain terminal could not show."""

import io
import shlex

import pytest
from rich.console import Console
from rich.text import Text

from tests.demo.narration import WIDTH, Teller


def told(*, encoding="utf-8"):
    written = io.BytesIO()
    file = io.TextIOWrapper(written, encoding=encoding, write_through=True)
    return Teller(Console(file=file, width=WIDTH), pace_seconds=0), lambda: written.getvalue().decode(encoding)


@pytest.mark.parametrize(
    "command",
    [
        "kubectl create -n team-a -f tests/demo/pods/one.yaml",
        'kubectl patch quota share -n team-a -p \'{"spec":{"hard":{"requests.nvidia.com/gpu":"40"}}}\'',
        "helm install fairgate charts/fairgate " + " ".join(f"--set key-{number}=value" for number in range(12)),
    ],
    ids=["a short command", "a quoted word", "a long command"],
)
def test_a_command_can_be_copied_however_long_it_is(command):
    teller, text = told()
    teller.ran(command, "done\n")
    shown, _, output = text().strip().rpartition("\n")
    assert shlex.split(shown.removeprefix("$ ").replace("\\\n", "")) == shlex.split(command)
    assert max(map(len, shown.splitlines())) <= WIDTH
    assert output == "  done"


def test_a_terminal_that_knows_ascii_alone_gets_no_other_signs():
    teller, text = told(encoding="ascii")
    teller.chapter("1. The greedy team", "A story.")
    teller.part("without Fairgate")
    teller.picture(Text("    node-0  A-A . ."))
    teller.outcome("It waits.")
    teller.summary([("1. The greedy team", "", ""), ("  asked", "waits", "runs")])
    assert "=> It waits." in text()
    assert "| 1. The greedy team |" in text()


def test_a_letter_is_never_taken_for_markup():
    teller, text = told()
    teller.say("a [bold] word")
    teller.list("export KUBECONFIG=[x]")
    assert text().splitlines() == ["a [bold] word", "export KUBECONFIG=[x]"]
