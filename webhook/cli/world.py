"""`fairgate world`: save a world as a file, with only the fields that decisions read."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import click

from webhook.cli.options import PolicyOptions, command, option
from webhook.cli.output import write_file

if TYPE_CHECKING:
    from webhook.kube.world_file.pseudonyms import Pseudonyms

_EXAMPLES = """\b
Examples:
  fairgate world > world.yaml
  fairgate world --policy policies --pseudonyms --names names.json > world.yaml
  kubectl get nodes,pods,namespaces,priorityclasses,hpa -A -o json > all.json
  fairgate world --policy policies --world all.json -o json > world.json

\b
Exit status: 0 written, 2 the policy or the world cannot be read."""


class Form(StrEnum):
    """The formats of a world file."""

    YAML = "yaml"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(PolicyOptions):
    """The user's options."""

    pseudonyms: bool = option("--pseudonyms", is_flag=True, help="Replace names that are not in the policy.")
    names: Path | None = option(
        "--names",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="With --pseudonyms: write the names and their pseudonyms to this file. Keep it to translate them back.",
    )
    form: Form = option("-o", "--output", type=click.Choice(Form, case_sensitive=False), default=Form.YAML.value)


@command(Options, epilog=_EXAMPLES, short_help="Save a world for bug reports and CI.")
def world(options: Options) -> None:
    """Print nodes, pods, namespaces and priority classes as a world file for --world; by default of the cluster.

    HorizontalPodAutoscalers and PodGroups are in it, too, for the minimums that
    they state.

    Only the fields that are read are kept: no images, commands, environment, volumes, Secrets or other annotations.
    Labels are kept for selectors. Finished pods are left out, but for those that their nodes rejected.

    With --pseudonyms the names of nodes, pods, gangs, controllers, users and namespaces are replaced, and the values of
    labels that name workloads, or that neither the policy nor Kubernetes or a GPU vendor defines; the same name gets
    the same pseudonym everywhere.
    Names in the policy stay, and namespaces stay in their teams, so that the same policy makes the same decisions.
    """
    names = options.names
    if names is not None and not options.pseudonyms:
        raise click.UsageError("--names needs --pseudonyms")
    text, replaced = _saved(options)
    if names is not None and replaced is not None:
        write_file(names, _names(replaced))
    click.echo(text, nl=False)


def _saved(options: Options) -> "tuple[str, Pseudonyms | None]":
    from webhook.cli.output import to_json, to_yaml  # noqa: PLC0415
    from webhook.cli.screen import progress  # noqa: PLC0415
    from webhook.cli.world_source import choose_policy, read_objects  # noqa: PLC0415
    from webhook.kube.watched.kept_fields import has_ended_for_good, kept_fields  # noqa: PLC0415
    from webhook.kube.world_file.pseudonyms import Pseudonyms, names_in_policy  # noqa: PLC0415

    with progress("Reading"):
        policy = choose_policy(options.policy, options.source)
        found = read_objects(options.source, namespaces=options.namespaces, has_room=False, is_saved=True)
    found.coverage.print_note()
    annotations = frozenset(key.key for key in policy.defaults.user_from)
    kept = [
        each
        for one in found.objects
        if not has_ended_for_good(one) and (each := kept_fields(one, annotations=annotations)) is not None
    ]
    pseudonyms = Pseudonyms(names_in_policy(policy)) if options.pseudonyms else None
    items = [dict(each) if pseudonyms is None else pseudonyms.rewritten(each) for each in kept]
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    return (to_json if options.form is Form.JSON else to_yaml)(listed), pseudonyms


def _names(pseudonyms: "Pseudonyms") -> str:
    from webhook.cli.output import to_json  # noqa: PLC0415

    def rows() -> Iterator[dict[str, str]]:
        for (kind, name), pseudonym in pseudonyms.given.items():
            yield {"kind": kind, "name": name, "pseudonym": pseudonym}

    return to_json(list(rows()))
