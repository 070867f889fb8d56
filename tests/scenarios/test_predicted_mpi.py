"""The same of the MPI operator, apart: the training operator has a definition of the same name."""

import pytest

from tests.control_plane.versions import MPI_OPERATOR
from tests.scenarios.manifests import mpi_job, template
from tests.scenarios.predicted import assert_examples_as_predicted, assert_predicted
from tests.scenarios.whole_gangs import assert_starts_whole

pytestmark = pytest.mark.cluster


@pytest.mark.usefixtures("mpi_operator")
def test_of_an_mpijob(cluster):
    assert_predicted(cluster, mpi_job("small", workers=3, gpus=2), mpi_job("large", workers=15, gpus=2))


@pytest.mark.usefixtures("mpi_operator")
def test_of_its_examples(cluster):
    benchmarks = "examples/v2beta1/tensorflow-benchmarks/tensorflow-benchmarks.yaml"
    assert_examples_as_predicted(cluster, MPI_OPERATOR, "examples/v2beta1/pi/pi.yaml", benchmarks)


@pytest.mark.usefixtures("mpi_operator")
def test_an_mpijob_in_line_starts_whole(cluster):
    assert_starts_whole(cluster, mpi_job("mpi", workers=4, gpus=4))


@pytest.mark.usefixtures("mpi_operator")
def test_room_is_kept_for_a_launcher_with_gpus_that_follows_its_workers(cluster):
    follows = mpi_job("mpi", workers=3, gpus=4)
    follows["spec"]["launcherCreationPolicy"] = "WaitForWorkersReady"
    follows["spec"]["mpiReplicaSpecs"]["Launcher"]["template"] = template("launcher", gpus=4)
    assert_starts_whole(cluster, follows, first=3)
