"""Pytest plugin: builds the control plane before the first test that needs it, and hands it out.

A test module that uses these fixtures says `pytest_plugins = ["tests.control_plane.fixtures"]`, or a conftest.py at the
top does it for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.control_plane import build, operators, prometheus
from tests.control_plane.cleanup import Snapshot
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.processes import ComponentError
from tests.control_plane.versions import (
    CONTROL_PLANE,
    HELM,
    JOBSET,
    KUBERAY,
    LWS,
    MPI_OPERATOR,
    PROMETHEUS,
    TRAINER,
    TRAINING_OPERATOR,
)
from tests.control_plane.workbench import make_namespace

# The fixtures that need more than the control plane itself.
RECIPES_BY_FIXTURE = {
    "built_control_plane": CONTROL_PLANE,
    "helm_binary": (HELM,),
    "training_operator": (TRAINING_OPERATOR,),
    "jobset": (JOBSET,),
    "kuberay": (KUBERAY,),
    "lws": (LWS,),
    "mpi_operator": (MPI_OPERATOR,),
    "trainer": (TRAINER,),
    "promtool": (PROMETHEUS,),
}
BUILD_FAILURE = pytest.StashKey[str]()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before any test starts: a first build takes minutes, which no test's own time limit should pay for."""
    if session.config.option.collectonly:
        return
    used = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    recipes = [recipe for fixture, group in RECIPES_BY_FIXTURE.items() if fixture in used for recipe in group]
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            build.ensure(recipes)
        except build.BuildError as error:
            session.config.stash[BUILD_FAILURE] = str(error)


@pytest.fixture(scope="session")
def built_control_plane(pytestconfig: pytest.Config) -> None:
    """The binaries are there; without them the test fails, it is never skipped."""
    if failure := pytestconfig.stash.get(BUILD_FAILURE, None):
        pytest.fail(f"the control plane could not be built: {failure}", pytrace=False)


@pytest.fixture(scope="session")
def helm_binary(pytestconfig: pytest.Config) -> None:
    """Helm is there; without it the test fails, it is never skipped."""
    if failure := pytestconfig.stash.get(BUILD_FAILURE, None):
        pytest.fail(f"helm could not be built: {failure}", pytrace=False)


@pytest.fixture(scope="session")
def control_plane(built_control_plane: None) -> Iterator[ControlPlane]:  # noqa: ARG001  it must run first
    """One control plane for the whole session; most tests want `cluster`, which is the same with nothing left on it."""
    running = _start_or_fail()
    with running:
        yield running


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane without nodes, pods and webhooks of other tests; what this test makes is deleted after it."""
    before = Snapshot.take(control_plane)
    yield control_plane
    control_plane.revive()
    before.restore(control_plane)


@pytest.fixture
def namespace(cluster: ControlPlane) -> str:
    """A new namespace in which pods can be made at once."""
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


@pytest.fixture(scope="module")
def training_operator(control_plane: ControlPlane) -> Iterator[None]:
    """The Kubeflow training operator runs against the control plane: PyTorchJob, TFJob and others make pods."""
    with operators.training_operator(control_plane):
        yield


@pytest.fixture(scope="module")
def jobset(control_plane: ControlPlane) -> Iterator[None]:
    """The JobSet controller and its webhooks run against the control plane."""
    with operators.jobset(control_plane):
        yield


@pytest.fixture(scope="module")
def kuberay(control_plane: ControlPlane) -> Iterator[None]:
    """KubeRay runs against the control plane: RayClusters, RayJobs and RayServices make pods."""
    with operators.kuberay(control_plane):
        yield


@pytest.fixture(scope="module")
def lws(control_plane: ControlPlane) -> Iterator[None]:
    """The LeaderWorkerSet controller and its webhooks run against the control plane."""
    with operators.lws(control_plane):
        yield


@pytest.fixture(scope="module")
def trainer(control_plane: ControlPlane, jobset: None) -> Iterator[None]:  # noqa: ARG001  it makes JobSets
    """The Kubeflow trainer runs against the control plane: TrainJobs of the runtime torch-distributed make JobSets."""
    with operators.trainer(control_plane):
        yield


@pytest.fixture(scope="module")
def mpi_operator(control_plane: ControlPlane) -> Iterator[None]:
    """The MPI operator runs against the control plane; not in one module with the training operator."""
    with operators.mpi_operator(control_plane):
        yield


@pytest.fixture(scope="session")
def promtool(built_control_plane: None) -> Callable[..., str]:  # noqa: ARG001  what it needs is built along with that
    """Prometheus' own checker: called with its arguments, gives what it printed."""
    return prometheus.promtool


def _start_or_fail(**options: object) -> ControlPlane:
    try:
        return ControlPlane(**options)
    except (ComponentError, build.BuildError) as error:
        pytest.fail(f"the control plane did not start: {error}", pytrace=False)
