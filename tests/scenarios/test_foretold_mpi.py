"""The same of the MPI operator, apart: the training operator has a definition of the same name."""

import pytest

from tests.control_plane.versions import MPI_OPERATOR
from tests.scenarios.foretold import assert_examples_as_foretold, assert_foretold
from tests.scenarios.manifests import mpi_job

pytestmark = pytest.mark.cluster


@pytest.mark.usefixtures("mpi_operator")
def test_of_an_mpijob(cluster):
    assert_foretold(cluster, mpi_job("small", workers=3, gpus=2), mpi_job("large", workers=15, gpus=2))


@pytest.mark.usefixtures("mpi_operator")
def test_of_its_examples(cluster):
    benchmarks = "examples/v2beta1/tensorflow-benchmarks/tensorflow-benchmarks.yaml"
    assert_examples_as_foretold(cluster, MPI_OPERATOR, "examples/v2beta1/pi/pi.yaml", benchmarks)
