"""`fairgate page` as a process, and what its options refuse."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli import sample_world
from tests.popen import killed_on_failure
from webhook.cli.main import main

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_it_serves_a_world_file_prints_its_url_and_ends_normally(tmp_path, how):
    options = sample_world.write(tmp_path)
    command = [sys.executable, "-m", "webhook", "page", *options, "--no-browser"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with killed_on_failure(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)) as running:
        url = re.search(r"Open (http://127\.0\.0\.1:\d+/open\?token=\S{40,})", running.stdout.readline())[1]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url.partition("/open")[0])
        with urllib.request.urlopen(url) as answer:
            assert "fairgate-page-" in answer.headers["Set-Cookie"]
        running.send_signal(how)
        assert running.wait(90) == 0


def test_a_port_that_is_taken_is_said(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(main, ["page", *sample_world.write(tmp_path), "--no-browser", "--port", port])
    assert result.exit_code == 2
    assert "cannot listen on 127.0.0.1" in result.stderr


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["--host", "x"], "--host needs --serve"),
        (["--port", "70000"], "70000"),
        (["--serve", "nonsense"], "--serve"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, words, want):
    result = CliRunner().invoke(main, ["page", *sample_world.write(tmp_path), *words])
    assert result.exit_code == 2
    assert want in result.stderr


def test_others_can_only_be_served_a_cluster(tmp_path):
    result = CliRunner().invoke(main, ["page", *sample_world.write(tmp_path), "--serve", "127.0.0.1:0"])
    assert result.exit_code == 2
    assert "--serve needs a cluster" in result.stderr


def test_a_world_that_cannot_be_read_and_a_missing_policy_are_said(tmp_path):
    options = sample_world.write(tmp_path)
    (tmp_path / "world.json").write_text("[")
    broken = CliRunner().invoke(main, ["page", *options, "--no-browser"])
    assert (broken.exit_code, "world.json" in broken.stderr) == (2, True)
    without = CliRunner().invoke(main, ["page", *options[2:], "--no-browser"])
    assert (without.exit_code, "give --policy DIR" in without.stderr) == (2, True)
