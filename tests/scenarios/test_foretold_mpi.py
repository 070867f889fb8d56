"""The same of the MPI operator, apart: the training operator has a definition of the same name."""

import pytest

from tests.scenarios.foretold import assert_foretold
from tests.scenarios.manifests import mpi_job

pytestmark = pytest.mark.cluster


@pytest.mark.usefixtures("mpi_operator")
def test_of_an_mpijob(cluster):
    assert_foretold(cluster, mpi_job("small", workers=3, gpus=2), mpi_job("large", workers=15, gpus=2))
