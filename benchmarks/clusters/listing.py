"""Commands that run `fairgate` with node lists of a given length, for benchmarks of that length."""

import sys

_PROGRAM = (
    "import runpy, sys; from webhook.core.admission import node_choice as choice;"
    "choice.LISTED_NODES = int(sys.argv.pop(1)); choice._RANKED = min(2, choice.LISTED_NODES);"
    "sys.argv[0] = 'fairgate'; runpy.run_module('webhook', run_name='__main__')"
)


def fairgate_with_lists_of(length: int) -> tuple[str, ...]:
    """Return the first words of a command line in place of `fairgate`."""
    return (sys.executable, "-c", _PROGRAM, str(length))
