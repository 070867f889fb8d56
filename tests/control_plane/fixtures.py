"""Pytest plugin: builds the control plane while other tests run, and provides it.

A test module that uses these fixtures has `pytest_plugins = ["tests.control_plane.fixtures"]`, or a conftest.py at the
top does it for all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager

import pytest
from xdist.workermanage import WorkerController

from tests.control_plane import alertmanager as alerts
from tests.control_plane import certmanager, operators, prometheus
from tests.control_plane.assets import missing_binaries
from tests.control_plane.background import BackgroundBuild
from tests.control_plane.build import BuildError, say_on_stderr
from tests.control_plane.cleanup import Snapshot
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.descheduler import Descheduler
from tests.control_plane.processes import ComponentError
from tests.control_plane.versions import (
    ALERTMANAGER,
    CERT_MANAGER,
    CONTROL_PLANE,
    FOR_REST,
    FOR_TEST,
    FOR_TEST_OPERATORS,
    HELM,
    OPERATORS,
    PROMETHEUS,
    Recipe,
)
from tests.control_plane.volcano import GIVES_UP_SOON, run_volcano
from tests.control_plane.workbench import make_namespace

# The fixtures that need more than the control plane itself.
RECIPES_BY_FIXTURE = {
    "built_control_plane": CONTROL_PLANE,
    "helm_binary": (HELM,),
    "cert_manager": (CERT_MANAGER,),
    **{recipe.name.replace("-", "_"): (recipe,) for recipe in OPERATORS},
    "promtool": (PROMETHEUS,),
    "alertmanager": (ALERTMANAGER,),
}
MARK = "operators"
BUILD = pytest.StashKey[BackgroundBuild]()
MISSING = pytest.StashKey[frozenset[str]]()
BUILD_FAILURE = pytest.StashKey[str | None]()
FILES = pytest.StashKey[frozenset[object]]()
RUNNING = pytest.StashKey[ControlPlane]()

LESS_COLLECTION = {"GOGC": "400", "GOMEMLIMIT": "1GiB"}
"""Environment of Go's programs: garbage collection takes a tenth of the API server's processor time by default."""


def recipes_of(item: pytest.Item) -> list[Recipe]:
    """Everything that must be built before this test runs, in the order in which it is built."""
    names = getattr(item, "fixturenames", ())
    return [recipe for fixture, group in RECIPES_BY_FIXTURE.items() if fixture in names for recipe in group]


def needs_operators(item: pytest.Item) -> bool:
    """Whether this test needs more than the control plane and Helm, by the fixtures that it and they request."""
    return any(recipe not in {*CONTROL_PLANE, *FOR_REST} for recipe in recipes_of(item))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--only-built", action="store_true", help=f"leave out the tests marked {MARK} that need a build")


def pytest_configure(config: pytest.Config) -> None:
    """Find out once for all workers what is not built yet: they must collect the same in one order."""
    config.addinivalue_line(
        "markers", f"{MARK}: needs an operator or a tool besides the control plane and Helm; derived"
    )
    given = getattr(config, "workerinput", {}).get("missing")
    if given is None:
        given = [
            recipe.name
            for recipe in dict.fromkeys((*FOR_TEST, *FOR_REST, *FOR_TEST_OPERATORS))
            if missing_binaries(recipe)
        ]
    config.stash[MISSING] = frozenset(given)


def pytest_configure_node(node: WorkerController) -> None:
    """Pass it to a worker."""
    node.workerinput["missing"] = sorted(node.config.stash[MISSING])


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test that needs an operator: no test is marked by hand, so none can be forgotten."""
    if needs_operators(item):
        item.add_marker(MARK)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the modules by the build order of what they need: tests that need nothing run meanwhile.

    If everything is built it is the other way round: the slowest first, and the fastest fill the gaps.
    """
    missing = config.stash[MISSING]
    if config.option.only_built:
        _leave_out_unbuilt(config, items, missing)
    order = [recipe.name for group in RECIPES_BY_FIXTURE.values() for recipe in group]
    stages: dict[object, int] = {}
    builds = False
    for item in items:
        names = [recipe.name for recipe in recipes_of(item)]
        stages[item.path] = max(stages.get(item.path, 0), *(order.index(name) + 1 for name in names), 0)
        builds = builds or not missing.isdisjoint(names)
    items.sort(key=lambda item: stages[item.path], reverse=not builds)
    config.stash[FILES] = frozenset(path for path, stage in stages.items() if stage)


def _leave_out_unbuilt(config: pytest.Config, items: list[pytest.Item], missing: frozenset[str]) -> None:
    """Deselect the tests that need an operator which is not built."""
    unbuilt = missing & {recipe.name for recipe in FOR_TEST_OPERATORS}
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (left_out if any(recipe.name in unbuilt for recipe in recipes_of(item)) else kept).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run that leaves out all its tests because they are not built has not failed."""
    if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and _left_out(session.config):
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say in one line whose tests were left out."""
    if names := _left_out(config):
        terminalreporter.line(f"left out, as they are not built: the tests of {', '.join(names)}")


def _left_out(config: pytest.Config) -> list[str]:
    """The operators and tools that are not built and whose tests this run is to leave out."""
    missing = config.stash[MISSING] if config.option.only_built else ()
    return [recipe.name for recipe in FOR_TEST_OPERATORS if recipe.name in missing]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Start to build what the tests need and is not there."""
    if session.config.option.collectonly:
        return
    wanted = {recipe.name: recipe for item in session.items for recipe in recipes_of(item)}
    if missing := [recipe for recipe in wanted.values() if missing_binaries(recipe)]:
        session.config.stash[BUILD] = BackgroundBuild(missing)
        session.config.add_cleanup(session.config.stash[BUILD].close)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Wait for what the test needs before its own time is measured: a first build takes minutes."""
    if build := item.config.stash.get(BUILD, None):
        capture = item.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            item.stash[BUILD_FAILURE] = build.wait_for(recipes_of(item), say=say_on_stderr)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose binaries could not be built; it is never skipped. End a control plane that is done.

    The files that need one come first, or last: where one without follows, only such follow.
    """
    if item.path not in item.config.stash[FILES] and (running := item.config.stash.get(RUNNING, None)):
        running.close()
        del item.config.stash[RUNNING]
    if failure := item.stash.get(BUILD_FAILURE, None):
        pytest.fail(f"the control plane could not be built: {failure}", pytrace=False)


@pytest.fixture(scope="session")
def built_control_plane() -> None:
    """The binaries are there; nothing runs yet."""


@pytest.fixture(scope="session")
def helm_binary() -> None:
    """Helm is there."""


@pytest.fixture(scope="session")
def control_plane(
    built_control_plane: None,  # noqa: ARG001  it must run first
    pytestconfig: pytest.Config,
) -> Iterator[ControlPlane]:
    """One control plane for all tests of a worker; most use `cluster`, which is the same in a clean state."""
    with _start_or_fail(environment=LESS_COLLECTION) as running:
        pytestconfig.stash[RUNNING] = running
        yield running


@pytest.fixture
def cluster(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """The control plane without nodes, pods and webhooks of other tests; what this test makes is deleted after it.

    Tests marked `standing` leave a Fairgate running for each other; from all others it is gone.
    """
    if request.node.get_closest_marker("standing") is None:
        control_plane.vacate()
    before = Snapshot.take(control_plane)
    yield control_plane
    control_plane.revive()
    before.restore(control_plane)


@pytest.fixture
def namespace(cluster: ControlPlane) -> str:
    """A new namespace in which pods can be created at once."""
    return make_namespace(cluster)


@pytest.fixture
def start_control_plane(built_control_plane: None) -> Iterator[Callable[..., ControlPlane]]:  # noqa: ARG001
    """Start control planes of the test's own, with `extra_args` or `audit`; they end with the test."""
    started: list[ControlPlane] = []

    def start(**options: object) -> ControlPlane:
        started.append(_start_or_fail(**options))
        return started[-1]

    yield start
    for running in started:
        running.close()


@pytest.fixture
def cert_manager(cluster: ControlPlane) -> Iterator[None]:
    """cert-manager runs against the control plane, for CA and self-signed Issuers, with its CA injector."""
    with certmanager.cert_manager(cluster):
        yield


def _operator(name: str) -> Callable[..., Iterator[None]]:
    """A fixture of the operator's name: it runs against the control plane, for the tests of a module."""

    @pytest.fixture(scope="module", name=name.replace("-", "_"))
    def running(control_plane: ControlPlane) -> Iterator[None]:
        with operators.operator(control_plane, name):
            yield

    return running


training_operator = _operator("training-operator")  # PyTorchJob, TFJob and others make pods
jobset = _operator("jobset")
kuberay = _operator("kuberay")  # RayClusters, RayJobs and RayServices make pods
lws = _operator("lws")
karpenter = _operator("karpenter")  # adds and removes nodes that KWOK plays
mpi_operator = _operator("mpi-operator")  # not in one module with the training operator


@pytest.fixture(scope="module")
def trainer(control_plane: ControlPlane, jobset: None) -> Iterator[None]:  # noqa: ARG001  it makes JobSets
    """The Kubeflow trainer runs against the control plane: TrainJobs of the runtime torch-distributed make JobSets."""
    with operators.operator(control_plane, "trainer"):
        yield


kueue = _operator("kueue")


@pytest.fixture(scope="module")
def volcano(control_plane: ControlPlane) -> Iterator[None]:
    """Volcano's scheduler and controllers run against the control plane; the scheduler is configured as by default."""
    with run_volcano(control_plane, controllers=GIVES_UP_SOON):
        yield


@pytest.fixture
def descheduler(cluster: ControlPlane) -> Descheduler:
    """Runs one round of the descheduler when it is called."""
    return Descheduler(cluster)


@pytest.fixture(scope="session")
def promtool(built_control_plane: None) -> Callable[..., str]:  # noqa: ARG001  what it needs is built along with that
    """Prometheus' own checker: called with its arguments, returns its output."""
    return prometheus.promtool


@pytest.fixture(scope="session")
def alertmanager(
    built_control_plane: None,  # noqa: ARG001  what it needs is built along with that
) -> Callable[[str], AbstractContextManager[str]]:
    """Runs Alertmanager for a block; called with the address of the webhook that it calls."""
    return alerts.alertmanager


def _start_or_fail(**options: object) -> ControlPlane:
    try:
        return ControlPlane(**options)
    except (ComponentError, BuildError) as error:
        pytest.fail(f"the control plane did not start: {error}", pytrace=False)
