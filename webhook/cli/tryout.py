"""`fairgate tryout`: a decision without a cluster, on an embedded world, by a real HTTPS webhook.

It serves as `fairgate serve` does, sends itself the AdmissionReview in `sample`, explains the decision, prints the
`curl` command that does the same, and keeps serving.
"""

import asyncio
import base64
import json
import ssl
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import aiohttp
import click
import jsonpatch
import msgspec

from webhook.cli.options import cannot_start, command, option, path_option, run_service
from webhook.core.model.amounts import parse_gpus, plural_gpus
from webhook.kube.objects import objects
from webhook.kube.pod.constraints import read_placement
from webhook.kube.pod.existing import chosen_nodes
from webhook.observe.logs import LogFormat
from webhook.server.root import run
from webhook.server.settings import Address, FileWorld, ServerSettings, StartupError

_SAMPLE: Final = Path(str(files("webhook.cli"))) / "sample"
_PACKAGED: Final = _SAMPLE / "policy"
_POLICIES: Final = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "policies" / "default"
"""The default policy: a wheel has a copy, a checkout the original."""

_REQUESTED: Final = '"nvidia.com/gpu": "2"'
_TOO_MUCH: Final = '"nvidia.com/gpu": "40"'
"""What the sample requests, and more than the default policy allows its team."""

_CERTS: Final = Path(".run") / "certs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's options."""

    policy: Path = path_option(
        "--policy",
        default=_POLICIES,
        show_default="policies/default",
        metavar="DIR",
        help="Folder of policy files.",
    )
    world: Path = path_option(
        "--world",
        default=_SAMPLE / "world.yaml",
        show_default="four nodes of ten GPUs each",
        help="Nodes and pods, as `kubectl get nodes,pods -A -o yaml` prints them.",
    )
    port: int = option(
        "--port",
        type=click.IntRange(0, 65_535),
        default=8443,
        metavar="PORT",
        help="With 0 the system chooses one.",
    )


@command(Options, short_help="Show one decision on an embedded world, then serve it.")
def tryout(options: Options) -> None:
    """Serve an embedded world over HTTPS and show one decision; needs no cluster.

    Certificates are created in ./.run/certs and reused the next time.
    """
    settings = ServerSettings(
        policy=options.policy,
        world=FileWorld(options.world),
        listen=Address("127.0.0.1", options.port),
        certs=_CERTS,
        log_format=LogFormat.CONSOLE,
        drain_seconds=0,
    )
    try:
        run_service(_serve_and_show(settings))
    except StartupError as exc:
        cannot_start(exc)


async def _serve_and_show(settings: ServerSettings) -> None:
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(run(settings, on_listening=listening.set_result))
    await asyncio.wait((listening, serving), return_when=asyncio.FIRST_COMPLETED)
    try:
        if listening.done():
            await _show(listening.result())
            click.echo("Serving; Ctrl-C stops.\n")
        await serving
    finally:
        serving.cancel()


async def _show(url: str) -> None:
    """Send the sample pod to both webhooks, as kube-apiserver would, then one that requests too much.

    All reviews are sent before anything is printed, so that log lines do not interrupt the output.
    """
    text = (_SAMPLE / "review.json").read_text()
    review, too_large = json.loads(text), json.loads(text.replace(_REQUESTED, _TOO_MUCH))
    context = ssl.create_default_context(cafile=_CERTS / "ca.crt")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        mutated = await _send(session, f"{url}/mutate", review)
        patched = jsonpatch.apply_patch(review["request"]["object"], _patch_of(mutated))
        patched["metadata"]["uid"] = "0f5f5a0e-tryout"
        final = {**review, "request": {**review["request"], "object": patched}}
        validated = await _send(session, f"{url}/validate", final)
        refused = await _send(session, f"{url}/mutate", too_large)
    _print_request(url, review)
    if mutated["allowed"]:
        _print_decision(patched, mutated)
        _print_charge(validated)
    else:
        _print_refusal(mutated)
    if not refused["allowed"]:
        click.echo(f"The same pod, requesting {_gpus_of(too_large)}:\n")
        _print_refusal(refused)
    _print_curl(url)


async def _send(session: aiohttp.ClientSession, url: str, review: dict[str, Any]) -> dict[str, Any]:
    async with session.post(url, json=review) as answer:
        body = await answer.json()
        if answer.status != 200:  # noqa: PLR2004 - HTTP's own number
            raise StartupError(f"{url} answered {answer.status}: {body}")
    response: dict[str, Any] = body["response"]
    return response


def _patch_of(response: dict[str, Any]) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = json.loads(base64.b64decode(response.get("patch", "W10=")))
    return operations


def _gpus_of(review: dict[str, Any]) -> str:
    containers = review["request"]["object"]["spec"]["containers"]
    limits = [container["resources"].get("limits", {}) for container in containers]
    return ", ".join(f"{name}: {amount}" for limit in limits for name, amount in limit.items() if "/" in name)


def _print_request(url: str, review: dict[str, Any]) -> None:
    request = review["request"]
    click.echo(f"\nFairgate serves at {url} with an embedded world of four nodes with ten GPUs each.")
    click.echo(
        f"A real AdmissionReview was sent to it, for pod {request['namespace']}/{request['name']} requesting"
        f" {_gpus_of(review)}:\n"
    )


def _print_decision(pod: dict[str, Any], response: dict[str, Any]) -> None:
    labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
    decision = json.loads(annotations["fairgate.dev/decision"])
    how = {"auto": "best first; the others are fallbacks", "prefer": "as a preference"}
    mode = how.get(decision["mode"], decision["mode"])
    click.echo(f"  admitted: {labels['fairgate.dev/tier']} ({decision['code']}) for team {labels['fairgate.dev/team']}")
    found = msgspec.json.decode(json.dumps(pod), type=objects.Pod)
    nodes = chosen_nodes(annotations, read_placement(found.spec).constraints)
    click.echo(f"  placed:   {', '.join(nodes) or 'no node has room now'} ({mode})")
    paths = (operation["path"].replace("~1", "/") for operation in _patch_of(response))
    click.echo(f"  patched:  {', '.join(paths)}")


def _print_charge(response: dict[str, Any]) -> None:
    if not response["allowed"]:
        _print_refusal(response)
        return
    charge = response.get("auditAnnotations", {})
    click.echo(
        f"  charged:  {plural_gpus(parse_gpus(charge['gpus']))} to team {charge['team']}, by the validating webhook\n"
    )


def _print_refusal(response: dict[str, Any]) -> None:
    click.echo(f"  refused:  {response['status']['message']}\n")


def _print_curl(url: str) -> None:
    click.echo("Try it yourself:\n")
    click.echo(f"  curl --cacert {_CERTS / 'ca.crt'} -H 'Content-Type: application/json' \\")
    click.echo(f"       --data @{_shortest(_SAMPLE / 'review.json')} '{url}/mutate?timeout=5s'\n")


def _shortest(path: Path) -> Path:
    """Return a path relative to the current folder, if it is below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
