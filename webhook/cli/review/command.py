"""`fairgate review`: the options, among them the outputs.

The outputs of a review: formats and files.
"""

import sys
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from webhook.cli import options
from webhook.cli.options import (
    argument,
    chosen_namespace,
    command,
    kubeconfig_option,
    of,
    option,
    path_option,
    policy_option,
)
from webhook.cli.output import write_file
from webhook.cli.review.results import Allow, FailOn


class Format(StrEnum):
    """The output formats of a review."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    GITHUB = "github"
    SARIF = "sarif"
    JUNIT = "junit"
    MARKDOWN = "markdown"
    REVIEW = "review"


@dataclass(frozen=True, slots=True)
class Output:
    """One output: its format, and its file, or None for standard output."""

    format: Format
    file: Path | None = None

    @property
    def is_colored(self) -> bool:
        """Whether to use color: never in a file."""
        return self.file is None and options.is_colored()

    @property
    def width(self) -> int:
        """The width: that of standard output; without bound in a file."""
        return options.columns() if self.file is None else options.UNBOUNDED

    def write(self, text: str) -> None:
        """Write the text. Raises UnwrittenError."""
        if self.file is None:
            click.echo(text, nl=False)
        else:
            write_file(self.file, text)


class OutputType(click.ParamType[Output]):
    """Parses FORMAT or FORMAT=FILE."""

    name = "format"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Output:
        """Parse one output; an error lists the formats."""
        if isinstance(value, Output):
            return value
        name, equals, file = str(value).partition("=")
        if name not in list(Format) or (equals and not file):
            self.fail(f"expected FORMAT or FORMAT=FILE with one of {', '.join(Format)}; got {value!r}", param, ctx)
        return Output(Format(name), Path(file) if file else None)

    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the formats."""
        return [CompletionItem(name) for name in Format if name.startswith(incomplete)]


# `fairgate review`: options and help; run.py implements it.


if TYPE_CHECKING:
    from webhook.cli.review.run import WorldSource

_EXAMPLES = """\b
Examples:
  fairgate review --policy policies k8s/
  kubectl fairgate review train.yaml
  helm template charts/train | fairgate review --policy policies --world world.yaml -
  kubectl kustomize overlays/prod | fairgate review --policy policies --cluster -n vision -
  fairgate review --policy policies -o github -o sarif=fairgate.sarif --fail-on preemptible k8s/
  fairgate review --policy policies --world world.yaml -o review review.json

\b
Exit status: 0 all admitted, 1 something refused (or --fail-on), 2 something could not be evaluated
(except by --allow unknown).
If both 1 and 2 apply it is 1."""


def _set_option(name: str, members: type[StrEnum], text: str) -> Any:  # noqa: ANN401 - as `option`
    """Return the field of an option that may be given several times, one member each."""
    choice = click.Choice(members, case_sensitive=False)
    return option(name, multiple=True, callback=lambda *args: frozenset(args[2]), type=choice, help=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's options."""

    sources: tuple[str, ...] = argument(
        metavar="FILE|DIR|-...", nargs=-1, required=True, type=click.Path(allow_dash=True)
    )
    policy: Path | None = of(policy_option)
    world: Path | None = path_option(
        "--world", help="Review against nodes and pods from a file, as `kubectl get nodes,pods -A -o yaml` prints them."
    )
    cluster: bool = option(
        "--cluster",
        is_flag=True,
        help="Review against a live cluster; nothing is written. The default without --policy, if there is a "
        "kubeconfig.",
    )
    empty: bool = option(
        "--empty",
        is_flag=True,
        help="Review against limits only, with nothing used and unlimited capacity. The default where --policy is "
        "given.",
    )
    kubeconfig: Path | None = of(kubeconfig_option)
    namespace: str = option(
        "-n",
        "--namespace",
        default="",
        metavar="NAME",
        help="Namespace of objects without one. Default: for a live cluster the kubeconfig's own, otherwise `default`.",
    )
    user: str = option(
        "--as",
        default="",
        metavar="USER",
        help="User who applies the manifests, for limits per user on bare pods. Default: unknown, with a warning.",
    )
    outputs: tuple[Output, ...] = option(
        "-o",
        "--output",
        multiple=True,
        type=OutputType(),
        metavar="FORMAT[=FILE]",
        help=f"One of {', '.join(Format)}; to a file if one is given. Repeatable. Default: table.",
    )
    with_patch: bool = option("--patch", is_flag=True, help="Show Fairgate's changes to the pods (table, markdown).")
    fail_on: frozenset[FailOn] = _set_option("--fail-on", FailOn, "Also fail for this. Repeatable.")
    allow: frozenset[Allow] = _set_option(
        "--allow", Allow, "Do not fail for this. `unknown`: kinds and numbers of pods that cannot be evaluated."
    )
    docs_url: str = option(
        "--docs-url",
        default="",
        envvar="FAIRGATE_DOCS_URL",
        show_envvar=True,
        metavar="URL",
        help="URL of a copy of this version's repository, for links in -o sarif. Default: no links, only causes and "
        "remedies.",
    )

    @property
    def against(self) -> "WorldSource":
        """What the manifests are reviewed against. Raises click.UsageError."""
        from webhook.cli.review.run import Empty  # noqa: PLC0415 - slow to import, and --help needs none of it
        from webhook.cli.world_source import default_kubeconfig, has_cluster  # noqa: PLC0415
        from webhook.server.settings import FileWorld, LiveCluster  # noqa: PLC0415

        if (self.world is not None) + self.cluster + self.empty > 1:
            raise click.UsageError("--world, --cluster and --empty exclude each other")
        is_live = self.cluster or (self.policy is None and not self.empty and has_cluster(self.kubeconfig))
        if self.world is None and is_live:
            return LiveCluster(self.kubeconfig or default_kubeconfig())
        if self.kubeconfig is not None:
            raise click.UsageError("--kubeconfig and --context need --cluster")
        return Empty() if self.world is None else FileWorld(self.world)


@command(Options, epilog=_EXAMPLES, short_help="Check whether manifests would be admitted.")
def review(options: Options) -> None:
    """Check whether manifests would be admitted, with which tier, on which nodes, and if not, why. Nothing is applied.

    Reads files, folders (*.yaml, *.yml and *.json, recursively) and, as -, standard input. Every pod that a workload
    would create is decided as the webhook would decide it, and is charged before the next. Namespaces and
    PriorityClasses among the manifests are taken into account. A workload that already exists in the world, or appears
    twice, is replaced. Of an AdmissionReview the pod in it is reviewed; -o review answers it as the webhook would.
    """
    # pydantic and rich are slow to import, and --help needs neither
    from webhook.cli.review.run import run  # noqa: PLC0415

    against, outputs = options.against, options.outputs or (Output(Format.TABLE),)
    formats = {output.format for output in outputs}
    if Format.REVIEW in formats and len(outputs) > 1:
        raise click.UsageError("-o review cannot be combined with other outputs")
    if options.with_patch and not formats <= {Format.TABLE, Format.MARKDOWN}:
        raise click.UsageError("--patch needs -o table or -o markdown")
    namespace = chosen_namespace(options.namespace, against)
    sys.exit(run(replace(options, outputs=outputs, namespace=namespace), against))
