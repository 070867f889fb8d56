from tests.evictor.conftest import pytest_asyncio_loop_factories  # noqa: F401
