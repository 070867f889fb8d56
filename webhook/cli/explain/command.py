"""`fairgate explain`: the options; run.py has the steps."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from webhook.cli.options import (
    Layout,
    WorldOptions,
    argument,
    chosen_namespace,
    command,
    layout_option,
    of,
    option,
    policy_option,
)
from webhook.kube.objects.keys import OWN_NAMESPACE

_KIND_AND_NAME: Final = 2

_EXAMPLES = """\b
Examples:
  kubectl fairgate explain pod/train-0 -n vision
  kubectl fairgate explain deployment/serve -n vision --node gpu-3
  fairgate explain --policy policies train.yaml
  fairgate explain --policy policies --world world.yaml pod/train-0 -n vision
  helm template charts/train | fairgate explain --policy policies -

\b
Exit status: 0 all runs, or would run now, 1 something is refused or waits, 2 something could not be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(WorldOptions):
    """The user's options."""

    words: tuple[str, ...] = argument(
        metavar="KIND/NAME|FILE|-", nargs=-1, required=True, type=click.Path(allow_dash=True)
    )
    policy: Path | None = of(policy_option)
    namespace: str = option(
        "-n",
        "--namespace",
        default="",
        metavar="NAME",
        help="Namespace of the object, or of objects that name none. Default: the kubeconfig's own; of a file, "
        "`default`.",
    )
    node: str | None = option(
        "--node", metavar="NAME", help="Also show why the pod would, or would not, go to this node."
    )
    fairgate_namespace: str = option(
        "--fairgate-namespace",
        default=OWN_NAMESPACE,
        metavar="NAME",
        help="Where Fairgate runs: the evictor's Lease is read there; other namespaces are searched if there is none.",
    )
    user: str = option(
        "--as", default="", metavar="USER", help="Who applies the manifests, for limits per user on bare pods."
    )
    layout: Layout = of(layout_option)

    @property
    def what(self) -> str:
        """What is explained: KIND/NAME, or KIND NAME as kubectl takes it, or a file. Raises click.UsageError."""
        if len(self.words) > _KIND_AND_NAME:
            raise click.UsageError(f"explain one thing at a time, got {' '.join(self.words)}")
        return "/".join(self.words)


@command(Options, epilog=_EXAMPLES, short_help="Explain one decision step by step.")
def explain(options: Options) -> None:
    """Explain step by step what Fairgate decides on a pod, and why; in the cluster, by default.

    The steps: demand, team, every limit with its sum and holders, tier, each pool with the nodes that have room (the
    best with their costs) and those without room by cause, the outcome, and what would run now instead. Costs are in
    GPUs: those that later pods can no longer use, those that the pod takes included, and a little for leftovers.

    For an existing pod it shows what it does, the decision at its creation, and the outcome if it were created now; for
    a waiting pod its place in the queue and what reclaim can do for it, for a borrowing pod an announced eviction. For
    a Job, Deployment or another kind that creates pods it explains the next pod of each role, or one that waits, or
    one that runs. A pod may be named NAMESPACE/NAME, as other commands print it. For a FILE it explains one pod of
    each role, each as if it were the first.
    """
    # pydantic and rich are slow to import, and --help needs neither
    from webhook.cli.explain.run import run  # noqa: PLC0415

    sys.exit(run(replace(options, namespace=chosen_namespace(options.namespace, options.source))))
