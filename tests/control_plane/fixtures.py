"""Pytest plugin: builds the control plane while other tests run, and provides it.

A test module that uses these fixtures has `pytest_plugins = ["tests.control_plane.fixtures"]`, or a conftest.py at the
top does it for all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import pytest
from xdist.workermanage import WorkerController

from tests.control_plane import certmanager, operators, prometheus
from tests.control_plane.assets import missing_binaries
from tests.control_plane.background import BackgroundBuild
from tests.control_plane.build import BuildError, say_on_stderr
from tests.control_plane.cleanup import Snapshot
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.processes import ComponentError
from tests.control_plane.versions import (
    CERT_MANAGER,
    CONTROL_PLANE,
    HELM,
    OPERATORS,
    PROMETHEUS,
    RECIPES,
    RIVALS,
    Recipe,
)
from tests.control_plane.workbench import make_namespace

# The fixtures that need more than the control plane itself.
RECIPES_BY_FIXTURE = {
    "built_control_plane": CONTROL_PLANE,
    "helm_binary": (HELM,),
    "cert_manager": (CERT_MANAGER,),
    **{recipe.name.replace("-", "_"): (recipe,) for recipe in OPERATORS},
    "promtool": (PROMETHEUS,),
}
BUILD = pytest.StashKey[BackgroundBuild]()
IS_BUILT = pytest.StashKey[bool]()
BUILD_FAILURE = pytest.StashKey[str | None]()


def recipes_of(item: pytest.Item) -> list[Recipe]:
    """Everything that must be built before this test runs, in the order in which it is built."""
    names = getattr(item, "fixturenames", ())
    return [recipe for fixture, group in RECIPES_BY_FIXTURE.items() if fixture in names for recipe in group]


def pytest_configure(config: pytest.Config) -> None:
    """Find out once for all workers whether something must be built: they must collect in one order."""
    given = getattr(config, "workerinput", {}).get("is_built")
    config.stash[IS_BUILT] = not any(map(missing_binaries, {*RECIPES.values()} - {*RIVALS})) if given is None else given


def pytest_configure_node(node: WorkerController) -> None:
    """Pass it to a worker."""
    node.workerinput["is_built"] = node.config.stash[IS_BUILT]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the modules by the build order of what they need: tests that need nothing run meanwhile.

    If everything is built it is the other way round: the slowest first, and the fastest fill the gaps.
    """
    order = [recipe.name for group in RECIPES_BY_FIXTURE.values() for recipe in group]
    stages: dict[object, int] = {}
    for item in items:
        last = max((order.index(recipe.name) + 1 for recipe in recipes_of(item)), default=0)
        stages[item.path] = max(last, stages.get(item.path, 0))
    items.sort(key=lambda item: stages[item.path], reverse=config.stash[IS_BUILT])


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
    """Fail a test whose binaries could not be built; it is never skipped."""
    if failure := item.stash.get(BUILD_FAILURE, None):
        pytest.fail(f"the control plane could not be built: {failure}", pytrace=False)


@pytest.fixture(scope="session")
def built_control_plane() -> None:
    """The binaries are there; nothing runs yet."""


@pytest.fixture(scope="session")
def helm_binary() -> None:
    """Helm is there."""


@pytest.fixture(scope="session")
def control_plane(built_control_plane: None) -> Iterator[ControlPlane]:  # noqa: ARG001  it must run first
    """One control plane for the whole session; most tests use `cluster`, which is the same in a clean state."""
    running = _start_or_fail()
    with running:
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
mpi_operator = _operator("mpi-operator")  # not in one module with the training operator


@pytest.fixture(scope="module")
def trainer(control_plane: ControlPlane, jobset: None) -> Iterator[None]:  # noqa: ARG001  it makes JobSets
    """The Kubeflow trainer runs against the control plane: TrainJobs of the runtime torch-distributed make JobSets."""
    with operators.operator(control_plane, "trainer"):
        yield


@pytest.fixture(scope="session")
def promtool(built_control_plane: None) -> Callable[..., str]:  # noqa: ARG001  what it needs is built along with that
    """Prometheus' own checker: called with its arguments, returns its output."""
    return prometheus.promtool


def _start_or_fail(**options: object) -> ControlPlane:
    try:
        return ControlPlane(**options)
    except (ComponentError, BuildError) as error:
        pytest.fail(f"the control plane did not start: {error}", pytrace=False)
