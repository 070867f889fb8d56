import pytest

from tests.evictor.conftest import pytest_asyncio_loop_factories  # noqa: F401 - a hook
from tests.evictor.conftest import stage as cluster  # noqa: F401 - a fixture
from webhook.addons.moves.mover import Moves


@pytest.fixture
def stage(cluster):  # noqa: F811
    """A small cluster whose evictor moves pods."""
    cluster.addons = (Moves,)
    return cluster
