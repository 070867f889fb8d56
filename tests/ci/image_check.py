"""The built image, run as Kubernetes' `restricted` profile would: own user, read-only root, no rights, no network.

`make image-check` runs this after `make image`; it needs Docker or Podman, so it is no part of `make test`.
"""

import contextlib
import json
import os
import re
import shlex
import subprocess
import time
import uuid

import pytest

from tests.ci.test_locks import pins
from tests.docs.pages import ROOT
from webhook import __version__
from webhook.cli.main import COMMANDS

CONTAINER = shlex.split(os.environ.get("CONTAINER", "docker"))
IMAGE = os.environ.get("IMAGE", f"fairgate/fairgate:{__version__}")
RESTRICTED = [
    "--rm",
    "--read-only",
    "--network=none",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    *shlex.split(os.environ.get("RUN_FLAGS", "")),
]
PROBE = """
import ssl, urllib.request
trusted = ssl.create_default_context(cafile="/certs/ca.crt")
for path in ("healthz", "readyz", "metrics"):
    print(urllib.request.urlopen(f"https://127.0.0.1:8443/{path}", context=trusted).status)
"""


def run(*arguments, flags=(), check=True):
    """Run a command of the image and return what it printed."""
    command = [*CONTAINER, "run", *RESTRICTED, *flags, IMAGE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=check, timeout=120)


def shell(script):
    return run("-c", script, flags=["--entrypoint=/bin/sh"], check=False)


@contextlib.contextmanager
def running(*arguments, flags=()):
    """Run a command of the image in the background; yield its name."""
    name = f"fairgate-check-{uuid.uuid4().hex[:8]}"
    command = [*CONTAINER, "run", "--detach", "--name", name, *RESTRICTED[1:], *flags, IMAGE, *arguments]
    subprocess.run(command, capture_output=True, check=True)
    try:
        yield name
    finally:
        subprocess.run([*CONTAINER, "rm", "--force", name], capture_output=True, check=True)


def logs(name):
    done = subprocess.run([*CONTAINER, "logs", name], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def wait_for(name, text):
    deadline = time.monotonic() + 60
    while text not in logs(name):
        assert time.monotonic() < deadline, logs(name)
        time.sleep(0.2)


def inspected():
    done = subprocess.run([*CONTAINER, "inspect", "--type=image", IMAGE], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)[0]["Config"]


def test_its_labels_user_and_entrypoint():
    config = inspected()
    assert (config["User"], config["Entrypoint"]) == ("65532:65532", ["fairgate"])
    assert config["Labels"]["org.opencontainers.image.version"] == __version__
    assert re.fullmatch(r"[0-9a-f]{40}", config["Labels"]["org.opencontainers.image.revision"])


def test_its_version():
    assert run("--version").stdout == f"fairgate, version {__version__}\n"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_is_there(command):
    assert run(command, "--help").stdout.startswith(f"Usage: fairgate {command} ")


def test_its_files_are_not_writable():
    assert run(flags=["--entrypoint=id"]).stdout.startswith("uid=65532")
    for path in ("/", "/opt/fairgate", "/etc"):  # Podman makes /tmp writable by default
        assert "Read-only file system" in shell(f"touch {path}/x").stderr
    writable = shell("find / -xdev -type f -perm -0002 -not -path '/proc/*' -not -path '/sys/*' 2>/dev/null").stdout
    assert writable == ""


def test_no_build_or_install_tools_are_left():
    found = shell("for tool in pip pip3 gcc cc make git curl; do command -v $tool; done; python3 -m pip --version")
    assert found.stdout == ""
    assert "No module named pip" in found.stderr


def test_its_bill_of_materials_matches_the_lock_file():
    listed = json.loads(run("/opt/fairgate/sbom.cdx.json", flags=["--entrypoint=cat"]).stdout)
    purls = {component["purl"] for component in listed["components"] if component["name"] != "fairgate"}
    installed = {re.fullmatch(r"pkg:pypi/(.*)@(.*)", purl).groups() for purl in purls}
    pinned = {name: next(iter(pin.specifier)).version for name, pin in pins("requirements.txt").items()}
    assert installed == set(pinned.items())
    [itself] = [component for component in listed["components"] if component["name"] == "fairgate"]
    assert itself["version"] == __version__


def test_tryout_shows_a_decision():
    with running("tryout", flags=["--tmpfs=/tmp"]) as name:
        wait_for(name, "Serving; Ctrl-C stops.")
        assert "admitted: guaranteed (WithinShare) for team team-a" in logs(name)


def test_serve_answers_with_only_its_certificates_writable_and_ends_on_sigterm():
    mounts = [
        f"--volume={ROOT}/policies/default:/etc/fairgate/policy:ro",
        f"--volume={ROOT}/webhook/cli/sample/world.yaml:/etc/fairgate/world.yaml:ro",
        "--tmpfs=/certs",
    ]
    arguments = ["serve", "--policy=/etc/fairgate/policy", "--world=/etc/fairgate/world.yaml", "--listen=:8443"]
    with running(*arguments, "--certs=/certs", "--drain-seconds=0", flags=mounts) as name:
        wait_for(name, "world loaded")
        inside = [*CONTAINER, "exec", name, "python3", "-c", PROBE]
        asked = subprocess.run(inside, capture_output=True, text=True, check=False)
        assert (asked.stdout, asked.stderr) == ("200\n200\n200\n", "")
        subprocess.run([*CONTAINER, "stop", "--time=20", name], capture_output=True, check=True)
        ended = subprocess.run(
            [*CONTAINER, "inspect", "--format={{.State.ExitCode}}", name], capture_output=True, text=True, check=True
        )
        assert ended.stdout == "0\n"
