from tests.evictor.conftest import pytest_asyncio_loop_factories, stage  # noqa: F401
