"""Calls of `fairgate simulate` in the working directory."""

import msgspec
from click.testing import CliRunner, Result

from webhook.addons.simulation.simulate.results import SimulationReport
from webhook.cli.main import main


def simulate(*words: str, world: object = "nodes.csv", trace: object = None) -> Result:
    """The command on a world, with `--trace` unless None or among the words."""
    of_trace = () if trace is None else ("--trace", str(trace))
    return CliRunner().invoke(main, ["simulate", "--world", str(world), *of_trace, *words])


def data(*words: str, **more: object) -> SimulationReport:
    """What a call that works returns."""
    result = simulate(*words, "-o", "json", **more)
    assert result.exit_code == 0, result.output
    return msgspec.json.decode(result.stdout, type=SimulationReport)


def failed(*words: str, **more: object) -> str:
    """The message of a call that fails."""
    result = simulate(*words, **more)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    return result.stderr
