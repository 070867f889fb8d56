"""`fairgate review`: options and help; run.py implements it."""

import sys
from pathlib import Path

import click

from webhook.cli.options import chosen_namespace, path_option, policy_option
from webhook.cli.review.findings import FailOn
from webhook.cli.review.outputs import Format, Output, OutputType

_EXAMPLES = """\b
Examples:
  fairgate review --policy policies k8s/
  kubectl fairgate review train.yaml
  helm template charts/train | fairgate review --policy policies --world world.yaml -
  kubectl kustomize overlays/prod | fairgate review --policy policies --cluster -n vision -
  fairgate review --policy policies -o github -o sarif=fairgate.sarif --fail-on preemptible k8s/
  fairgate review --policy policies --world world.yaml -o review review.json

\b
Exit status: 0 all admitted, 1 something refused (or --fail-on), 2 something could not be evaluated.
If both 1 and 2 apply it is 1."""


@click.command(epilog=_EXAMPLES, short_help="Check whether manifests would be admitted.")
@click.argument("sources", metavar="FILE|DIR|-...", nargs=-1, required=True, type=click.Path(allow_dash=True))
@policy_option
@path_option(
    "--world",
    help="Review against nodes and pods from a file, as `kubectl get nodes,pods -A -o yaml` prints them.",
)
@click.option(
    "--cluster",
    is_flag=True,
    help="Review against a live cluster; nothing is written. The default without --policy, if there is a kubeconfig.",
)
@click.option(
    "--empty",
    is_flag=True,
    help="Review against limits only, with nothing used and unlimited capacity. The default where --policy is given.",
)
@path_option(
    "--kubeconfig",
    help="The cluster for --cluster. Default: $KUBECONFIG, ~/.kube/config, or the cluster this pod runs in.",
)
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="Namespace of objects without one. Default: for a live cluster the kubeconfig's own, otherwise `default`.",
)
@click.option(
    "--as",
    "user",
    default="",
    metavar="USER",
    help="User who applies the manifests, for limits per user on bare pods. Default: unknown, with a warning.",
)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=OutputType(),
    metavar="FORMAT[=FILE]",
    help=f"One of {', '.join(Format)}; to a file if one is given. Repeatable. Default: table.",
)
@click.option("--patch", "with_patch", is_flag=True, help="Show Fairgate's changes to the pods (table, markdown).")
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(FailOn, case_sensitive=False),
    help="Also fail for this. Repeatable.",
)
@click.option(
    "--docs-url",
    default="https://fairgate.dev",
    show_default=True,
    envvar="FAIRGATE_DOCS_URL",
    show_envvar=True,
    metavar="URL",
    help="URL of this version's documentation, for links in -o sarif: a copy of the repository, for example.",
)
def review(
    *,
    sources: tuple[str, ...],
    policy: Path | None,
    world: Path | None,
    cluster: bool,
    empty: bool,
    kubeconfig: Path | None,
    namespace: str | None,
    user: str,
    outputs: tuple[Output, ...],
    with_patch: bool,
    fail_on: tuple[FailOn, ...],
    docs_url: str,
) -> None:
    """Check whether manifests would be admitted, with which tier, on which nodes, and if not, why. Nothing is applied.

    Reads files, folders (*.yaml, *.yml and *.json, recursively) and, as -, standard input. Every pod that a workload
    would create is decided as the webhook would decide it, and is charged before the next. Namespaces and
    PriorityClasses among the manifests are taken into account. A workload that already exists in the world, or appears
    twice, is replaced. Of an AdmissionReview the pod in it is reviewed; -o review answers it as the webhook would.
    """
    # pydantic and rich are slow to import, and --help needs neither
    from webhook.cli.review.review_world import Empty  # noqa: PLC0415
    from webhook.cli.review.run import Options, run  # noqa: PLC0415
    from webhook.cli.world_source import default_kubeconfig, has_cluster  # noqa: PLC0415
    from webhook.server.settings import LiveCluster, WorldFile  # noqa: PLC0415

    if (world is not None) + cluster + empty > 1:
        raise click.UsageError("--world, --cluster and --empty exclude each other")
    is_live = cluster or (policy is None and world is None and not empty and has_cluster(kubeconfig))
    if kubeconfig is not None and not is_live:
        raise click.UsageError("--kubeconfig needs --cluster")
    outputs = outputs or (Output(Format.TABLE),)
    formats = {output.format for output in outputs}
    if Format.REVIEW in formats and len(outputs) > 1:
        raise click.UsageError("-o review cannot be combined with other outputs")
    if with_patch and not formats <= {Format.TABLE, Format.MARKDOWN}:
        raise click.UsageError("--patch needs -o table or -o markdown")
    against = (
        WorldFile(world)
        if world is not None
        else LiveCluster(kubeconfig or default_kubeconfig())
        if is_live
        else Empty()
    )
    own = chosen_namespace(namespace, against)
    options = Options(sources, policy, against, own, user, outputs, frozenset(fail_on), with_patch, docs_url)
    sys.exit(run(options))
