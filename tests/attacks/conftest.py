import asyncio

from tests.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories(item):
    """Messages wait for no clock: both ends of their connections are in the loop of the test."""
    if item.path.name == "test_notify.py":
        return {"virtual": VirtualTimeLoop}
    return {"asyncio": asyncio.new_event_loop}
