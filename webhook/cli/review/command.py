"""`fairgate review`: the options and what they mean; run.py does it."""

import sys
from pathlib import Path

import click

from webhook.cli.options import policy_option
from webhook.cli.review.findings import FailOn
from webhook.cli.review.outputs import Format, Output, OutputType

_EXAMPLES = """\b
Examples:
  fairgate review --policy policies k8s/
  helm template charts/train | fairgate review --policy policies --world world.yaml -
  kubectl kustomize overlays/prod | fairgate review --policy policies --cluster -n vision -
  fairgate review --policy policies -o github -o sarif=fairgate.sarif --fail-on preemptible k8s/
  fairgate review --policy policies --world world.yaml -o review review.json

\b
Exit status: 0 all admitted, 1 something refused (or --fail-on), 2 something could not be judged.
Where both is true it is 1: a refusal stays one, whatever the rest turns out to be."""


@click.command(epilog=_EXAMPLES, short_help="Judge manifests without applying them.")
@click.argument("sources", metavar="FILE|DIR|-...", nargs=-1, required=True, type=click.Path(allow_dash=True))
@policy_option
@click.option(
    "--world",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Judge against nodes and pods from a file, as `kubectl get nodes,pods -A -o yaml` prints them.",
)
@click.option("--cluster", is_flag=True, help="Judge against a live cluster, which is only read.")
@click.option(
    "--empty",
    is_flag=True,
    help="Judge limits only: nothing is used, room is taken for granted. The default.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The cluster for --cluster. Default: $KUBECONFIG, ~/.kube/config, or the cluster this pod runs in.",
)
@click.option(
    "-n",
    "--namespace",
    default="default",
    show_default=True,
    metavar="NAME",
    help="Namespace of objects that name none.",
)
@click.option(
    "--as",
    "user",
    default="",
    metavar="USER",
    help="Who applies the manifests, for limits per user on bare pods. Default: nobody, and a warning.",
)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=OutputType(),
    metavar="FORMAT[=FILE]",
    help=f"One of {', '.join(Format)}; to a file if one is named. Repeatable. Default: table.",
)
@click.option(
    "--patch", "with_patch", is_flag=True, help="Show what Fairgate would write on the pods (table, markdown)."
)
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(FailOn, case_sensitive=False),
    help="Fail for this, too. Repeatable.",
)
@click.option(
    "--docs-url",
    default="https://fairgate.dev",
    show_default=True,
    envvar="FAIRGATE_DOCS_URL",
    show_envvar=True,
    metavar="URL",
    help="Where this version's documentation is, for links in -o sarif: a copy of the repository, for example.",
)
def review(
    *,
    sources: tuple[str, ...],
    policy: Path | None,
    world: Path | None,
    cluster: bool,
    empty: bool,
    kubeconfig: Path | None,
    namespace: str,
    user: str,
    outputs: tuple[Output, ...],
    with_patch: bool,
    fail_on: tuple[FailOn, ...],
    docs_url: str,
) -> None:
    """Judge manifests without applying them: would they be admitted, on what terms, where, and if not why.

    Reads files, folders (*.yaml, *.yml and *.json in them and below) and, as -, standard input. Every pod that a
    workload would make is judged as the webhook would judge it, and counts for those after it. Namespaces and
    PriorityClasses among the manifests are taken into account. A workload that the world has already, or that comes
    twice, is replaced. An AdmissionReview is judged by the pod in it; -o review answers it as the webhook would.
    """
    # pydantic and rich are slow to import, and --help needs neither
    from webhook.cli.review.review_world import Empty  # noqa: PLC0415
    from webhook.cli.review.run import Order, run  # noqa: PLC0415
    from webhook.cli.world_source import default_kubeconfig  # noqa: PLC0415
    from webhook.server.settings import LiveCluster, WorldFile  # noqa: PLC0415

    if (world is not None) + cluster + empty > 1:
        raise click.UsageError("--world, --cluster and --empty exclude each other: a world comes from one of them")
    if kubeconfig is not None and not cluster:
        raise click.UsageError("--kubeconfig is for --cluster")
    outputs = outputs or (Output(Format.TABLE),)
    formats = {output.format for output in outputs}
    if Format.REVIEW in formats and len(outputs) > 1:
        raise click.UsageError("-o review goes alone: it charges the pods itself")
    if with_patch and not formats <= {Format.TABLE, Format.MARKDOWN}:
        raise click.UsageError("--patch is for -o table and -o markdown")
    against = (
        WorldFile(world)
        if world is not None
        else LiveCluster(kubeconfig or default_kubeconfig())
        if cluster
        else Empty()
    )
    order = Order(sources, policy, against, namespace, user, outputs, frozenset(fail_on), with_patch, docs_url)
    sys.exit(run(order))
