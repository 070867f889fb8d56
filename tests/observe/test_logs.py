import asyncio
import fcntl
import json
import logging
import os
import threading
import warnings

import pytest

from webhook.observe.logs import LineWriter, LogFormat, open_logs


@pytest.fixture
def pipe():
    ends = [*os.pipe()]
    yield ends
    for fd in ends:
        try:
            os.close(fd)
        except OSError:
            continue


def lines_from(fd):
    return os.read(fd, 1 << 20).decode().splitlines()


def test_an_event_is_one_json_line_with_time_level_and_event_first(pipe):
    open_logs(LogFormat.JSON, fd=pipe[1]).event.info("listening", url="https://localhost:1")
    (line,) = lines_from(pipe[0])
    fields = json.loads(line)
    assert list(fields) == ["time", "level", "event", "url"]
    assert fields["level"] == "info"


def test_values_that_json_has_no_type_for_are_logged_as_text(pipe):
    open_logs(LogFormat.JSON, fd=pipe[1]).event.info("odd", value={1, 2}.__class__)
    (line,) = lines_from(pipe[0])
    assert json.loads(line)["value"] == "<class 'set'>"


def test_an_exception_comes_with_its_traceback_in_the_same_line(pipe):
    logs = open_logs(LogFormat.JSON, fd=pipe[1])
    try:
        {}["inside"]
    except KeyError:
        logs.event.exception("bug")
    (line,) = lines_from(pipe[0])
    assert json.loads(line)["traceback"].endswith("KeyError: 'inside'")


async def test_the_console_format_has_one_line_per_decision(pipe):
    logs = open_logs(LogFormat.CONSOLE, fd=pipe[1])
    logs.decision({"outcome": "deny", "message": "two\nlines"})
    logs.flush()
    (line,) = lines_from(pipe[0])
    assert "decision" in line
    assert "outcome=deny" in line


async def test_decisions_are_written_in_batches_with_a_short_delay_in_order(pipe):
    logs = open_logs(LogFormat.JSON, fd=pipe[1])
    os.set_blocking(pipe[0], False)
    logs.decision({"n": 1})
    logs.decision({"n": 2})
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 1)
    logs.event.info("after")
    assert [json.loads(line).get("n") for line in lines_from(pipe[0])] == [1, 2, None]
    logs.decision({"n": 3})
    async with asyncio.timeout(60):
        while True:
            try:
                assert [json.loads(line)["n"] for line in lines_from(pipe[0])] == [3]
                break
            except BlockingIOError:
                await asyncio.sleep(0.002)


def test_a_slow_reader_of_a_non_blocking_pipe_loses_nothing(pipe):
    read, write = pipe
    os.set_blocking(write, False)
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    line = b"x" * 99_999 + b"\n"
    got = bytearray()

    def read_all():
        while len(got) < len(line):
            got.extend(os.read(read, 1000))

    reader = threading.Thread(target=read_all)
    reader.start()
    LineWriter(write).write(line)
    reader.join(timeout=10)
    assert bytes(got) == line


def test_a_log_without_a_reader_blocks_nothing(pipe):
    os.close(pipe[0])
    writer = LineWriter(pipe[1])
    writer.write(b"lost\n")
    writer.write(b"lost, too\n")
    pipe[0], write = os.pipe()
    os.dup2(write, pipe[1])  # a reader is there again
    os.close(write)
    writer.write(b"read\n")
    assert lines_from(pipe[0]) == ["read"]


def test_libraries_log_the_same_way(pipe):
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        open_logs(LogFormat.JSON, fd=pipe[1]).capture_libraries()
        logging.getLogger("some.library").warning("%s is %s", "this", "odd")
        logging.getLogger("some.library").info("chatter")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", DeprecationWarning, stacklevel=1)
    finally:
        logging.captureWarnings(capture=False)
        root.handlers[:], root.level = before, level
    first, second = (json.loads(line) for line in lines_from(pipe[0]))
    assert (first["event"], first["logger"], first["message"]) == ("library", "some.library", "this is odd")
    assert (second["logger"], "DeprecationWarning: old" in second["message"]) == ("py.warnings", True)
