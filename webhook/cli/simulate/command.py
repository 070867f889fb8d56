"""`fairgate simulate`: the help; options.py has the options, run.py implements it."""

from webhook.cli.command import command
from webhook.cli.simulate.options import Options

_EXAMPLES = """\b
Examples:
  fairgate simulate --world nodes.csv --policy policies --trace tasks.csv
  fairgate simulate --world nodes.csv --policy policies.old --policy policies.new --load 0.9 --days 2 --rounds 3
  fairgate simulate --world world.yaml --policy policies --load 0.8 --mix 1:60,4:30,8:10 --report report.html
  fairgate simulate --world world.yaml --policy policies --trace history.db
  fairgate simulate --world nodes.csv --policy policies --trace tasks.csv --buy 8xNVIDIA-H100-80GB-HBM3 --within 1h

\b
Exit status: 0 shown, 2 the policy, the world or the trace cannot be read, or an output not be written."""


@command(Options, epilog=_EXAMPLES, short_help="Show how long a load waits under a policy, in simulated time.")
def simulate(options: Options) -> None:
    """Run a load through the decisions of the webhook, the queue and reclaim in simulated time; nothing is written.

    It says how long jobs wait (50, 90 and 99 percent of them at most so long), how many GPUs are in use, how fragmented
    the free ones are, what is evicted, and how much work that loses. The world is a file of `fairgate world`, a live
    cluster, a table of nodes (CSV: name, gpus, model, cpu, memory, count, or openb's columns), or a history.

    The same inputs and seed give the same result. What is left out: the time in which pods start and end, failures of
    nodes and pods, and autoscalers.
    """
    options.check()
    # pydantic and rich are slow to import, and --help needs neither
    from webhook.cli.simulate.run import run  # noqa: PLC0415

    run(options)
