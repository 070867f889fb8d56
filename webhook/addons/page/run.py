"""Runs `fairgate page` for one person.

The Events of Fairgate, read once as far as the user's rights allow: decisions for those who may not watch.
"""

import asyncio
import contextlib
import signal
import time
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from webhook.addons.page.access.access import ApiRights, Authenticator, TokenAuthenticator, UrlAuthenticator
from webhook.addons.page.asked import Cluster, CommandAnswers, RecordedUsage, of_cluster, of_files
from webhook.addons.page.command import Options
from webhook.addons.page.live.cluster_state import COMPONENTS, ClusterState, KeptObjects, Reading, is_fresh, note_event
from webhook.addons.page.live.hub import READING, StateUpdater, no_news
from webhook.addons.page.root import LOCAL, Page, PageSettings
from webhook.cli.live_cluster import COMPLETE, Coverage, policy_of_report, read_policy
from webhook.cli.live_cluster import read_objects as read_live
from webhook.cli.options import run_service
from webhook.cli.output import is_of_output
from webhook.cli.world_source import WorldError, WorldObjects, choose_policy, read_objects, world_of
from webhook.cluster.api.client import ApiConnection, ClusterError, connect
from webhook.cluster.api.requests import own_namespace
from webhook.cluster.reads.listing import list_objects, read_permitted
from webhook.core.model.policy import Policy
from webhook.core.world.world import World
from webhook.files import InputError, Snapshots
from webhook.server.settings import FileWorld, LiveCluster

_PATH: Final = "/api/v1/events"


async def read_events(kubeconfig: Path | None, namespaces: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    """Return the Events that may be listed, and a note about those that may not, "" for none. Raises ClusterError."""
    found: list[dict[str, Any]] = []
    asked = list(dict.fromkeys([*namespaces, await own_namespace(kubeconfig)]))
    async with await connect(kubeconfig) as connection:

        async def read(path: str) -> None:
            for component in COMPONENTS:
                found.extend(await list_objects(connection, path, kind="Event", selector=f"source={component}"))

        scope = await read_permitted(_PATH, read, namespaces=asked)
    if scope.is_all:
        return found, ""
    where = f"of {', '.join(scope.namespaces)} alone" if scope.namespaces else "not shown"
    return found, f"decisions that only Events report are {where}: you may not list other Events"


# Keeps the state of the page equal to a world file: it is read again after each change.


LOOK_SECONDS: Final = 2.0
"""Between two looks at the file. It is read once two looks find the same: then it is completely written."""

_Version = tuple[int, int, int]
_GONE: Final[_Version] = (0, 0, 0)


class FollowedFile:
    """A world file, and the `state` that the page shows of it. `read` reads it. Both raise InputError at first."""

    def __init__(self, path: Path, read: Callable[[], Reading], *, domain: str) -> None:
        self._path = path
        self._read = read
        self._shown = self._seen = self._version()
        reading = read()
        self.state = ClusterState(reading, f"world file {path}", domain)
        self._show(reading)

    async def run(self) -> NoReturn:
        """Follow the file until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Read the file again where it changed and is no longer written; what was read stays where that fails."""
        try:
            before, self._seen = self._seen, self._version()
        except InputError as error:
            self._shown = self._seen = _GONE
            self._say_old(str(error))
            return
        if self._seen == self._shown or self._seen != before:
            return
        self._shown = self._seen
        try:
            reading = await asyncio.to_thread(self._read)
        except InputError as error:
            self._say_old(str(error))
            return
        if len(reading.objects):
            self._show(reading)
        else:
            self._say_old(f"{self._path}: there is no object in it")

    def _say_old(self, why: str) -> None:
        old = no_news("of the file", time.time(), why)
        self.state.why_stale = lambda: old

    def _show(self, reading: Reading) -> None:
        self.state.saved = self._shown[0] // 1_000_000_000
        self.state.why_stale = is_fresh
        self.state.replace(reading)

    def _version(self) -> _Version:
        try:
            found = self._path.stat()
        except OSError as error:
            raise WorldError(f"{self._path}: cannot be read: {error.strerror or error}") from error
        return found.st_mtime_ns, found.st_size, found.st_ino


# Runs `fairgate page`: reads the source, serves the page, and opens the browser.


def _settings(options: Options) -> PageSettings:
    """Return where the page is served."""
    if options.serve is None:
        return PageSettings(host=LOCAL, port=options.port)
    return PageSettings(host=options.serve.host, port=options.serve.port, names=frozenset(options.hosts))


def run(options: Options) -> None:
    """Serve until Ctrl-C or a signal."""
    try:
        with contextlib.suppress(KeyboardInterrupt):
            run_service(_until_stopped(options))
    except OSError as error:
        if is_of_output(error):
            raise
        raise WorldError(f"cannot listen on {_settings(options).host}: {error.strerror or error}") from error


async def _until_stopped(options: Options) -> None:
    serving = asyncio.create_task(_serve(options))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        if not serving.cancelled():
            raise
    except ExceptionGroup as errors:
        raise _first(errors) from errors


def _first(error: Exception) -> Exception:
    """Return the first error of nested groups: one part of the page ends all."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def _serve(options: Options) -> None:
    async with AsyncExitStack() as stack:
        match options.source:
            case FileWorld() as source:
                await _serve_file(options, source)
            case LiveCluster(kubeconfig=kubeconfig):
                connection = await stack.enter_async_context(await connect(kubeconfig))
                await _serve_cluster(options, kubeconfig, connection)


async def _serve_file(options: Options, source: FileWorld) -> None:
    if options.serve is not None:
        raise WorldError("--serve needs a cluster: it asks the API server who may see what")
    policy = choose_policy(options.policy, source)
    file = FollowedFile(
        source.path, lambda: reading_of(read_objects(source), policy, str(source.path)), domain=options.domain
    )
    await _show(options, file.state, UrlAuthenticator(), cluster=None, keep=file.run)


async def _serve_cluster(options: Options, kubeconfig: Path | None, connection: ApiConnection) -> None:
    policy, problem = await _first_policy(options, kubeconfig)
    origin = f"cluster {connection.server}"
    annotations = frozenset(key.key for key in policy.defaults.user_from)
    reading = Reading(World(policy), KeptObjects(annotations))
    state = ClusterState(reading, origin, options.domain, problem=problem or READING)
    coverage = [COMPLETE]

    async def reread() -> Reading:
        if problem and not state.world.policy.teams:
            raise ClusterError(problem)
        found = await read_live(kubeconfig, options.namespaces, has_room=False)
        events, note = await read_events(kubeconfig, options.namespaces)
        for each in events:
            note_event(each, state)
        coverage[:] = [found.coverage]
        objects = WorldObjects(found.objects, found.coverage, found.unnamed, read_at=int(time.time()))
        try:
            reading = reading_of(objects, state.world.policy, origin)
        except InputError as error:
            raise ClusterError(str(error)) from error
        reading.notes = (*reading.notes, *filter(None, [note]))
        return reading

    updater = StateUpdater(
        connection, state, reread=reread, read_policy=None if options.policy is not None else _read_policy
    )
    authenticator: Authenticator = UrlAuthenticator()
    if options.serve is not None:
        authenticator = TokenAuthenticator(ApiRights(connection), namespaces=lambda: _namespaces(state.world))
    await _show(
        options, state, authenticator, cluster=Cluster(kubeconfig), keep=updater.run, coverage=lambda: coverage[0]
    )


async def _show(
    options: Options,
    state: ClusterState,
    authenticator: Authenticator,
    *,
    cluster: Cluster | None,
    keep: Callable[[], Any],
    coverage: Callable[[], Coverage] = lambda: COMPLETE,
) -> None:
    snapshots = Snapshots()
    answers = CommandAnswers(state, snapshots, cluster=cluster, coverage=coverage)
    history = _history(options, cluster)
    page = Page(state, authenticator, answers, snapshots=snapshots, history=history)

    def on_ready(url: str) -> None:
        click.echo(f"Open {url}" if options.serve is None else f"Serving at {url}")
        if not options.no_browser and options.serve is None:
            webbrowser.open(url)

    async def keep_both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_run(keep))
            if history is not None:
                group.create_task(history.run())

    await page.serve(_settings(options), keep=keep_both, on_ready=on_ready)


def _history(options: Options, cluster: Cluster | None) -> RecordedUsage | None:
    if options.history:
        return RecordedUsage(of_files(options.history))
    return None if cluster is None else RecordedUsage(of_cluster(cluster.kubeconfig))


async def _run(keep: Callable[[], Any]) -> None:
    await keep()


async def _first_policy(options: Options, kubeconfig: Path | None) -> tuple[Policy, str]:
    """Return the policy to begin with; where none can be read yet, an empty one and why."""
    if options.policy is not None:
        return choose_policy(options.policy, options.source), ""
    try:
        return await read_policy(kubeconfig), ""
    except ClusterError as error:
        return Policy(), str(error)


def _read_policy(report: Mapping[str, Any]) -> Policy | None:
    try:
        return policy_of_report(report)
    except ClusterError:
        return None


def reading_of(found: WorldObjects, policy: Policy, name: str) -> Reading:
    """Return what was read. Raises WorldError."""
    objects = KeptObjects(frozenset(key.key for key in policy.defaults.user_from))
    for each in found.objects:
        objects.set(each)
    world = world_of(found, policy, name=name, keep_nodes=True)
    return Reading(world, objects, tuple(found.coverage.notes()), found.coverage.is_room_known)


def _namespaces(world: World) -> set[str]:
    """Return the namespaces that have something to show."""
    found = {str(pod.namespace) for pod in world.pods() if pod.demand.gpus}
    return found | {str(waiting.pod.namespace) for waiting in world.waiting.all()}
