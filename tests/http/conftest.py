"""The acceptor's tests run on the loop of production and on asyncio's own, whose transports differ."""

import asyncio

import uvloop


def pytest_asyncio_loop_factories(item):
    if item.path.name == "test_acceptor.py":
        return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
