"""Runs many commands of Fairgate in processes of their own, after importing once: imports take most of a short run.

`python -m tests.blackbox.many FOLDER NAME=JSON...`: JSON is a list of arguments; NAME.out, NAME.err and NAME.status
are left in the folder. They run without root's right to read and write everything.
"""

import ctypes
import gc
import importlib
import json
import os
import sys
from pathlib import Path

from webhook.cli.main import COMMANDS, main

CAPABILITIES_VERSION = 0x20080522
READ_AND_WRITE_ALL = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


def give_up_root() -> None:
    """Let permissions hold for this process, too; its files stay its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    sets[0] &= ~READ_AND_WRITE_ALL
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


def run_one(folder: Path, name: str, arguments: list[str]) -> int:
    """Run one command to its end; a signal that killed it is a negative number."""
    child = os.fork()
    if child == 0:
        for number, suffix in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / f"{name}.{suffix}", os.O_WRONLY | os.O_CREAT, 0o644), number)
        main(arguments, prog_name="fairgate")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    where = Path(sys.argv[1])
    for place in (*COMMANDS.values(), "webhook.cluster.credentials"):
        importlib.import_module(place.partition(":")[0])
    gc.freeze()  # or each process would copy all that was imported, to find that it is still in use
    if os.geteuid() == 0:
        give_up_root()
    for given in sys.argv[2:]:
        called, _, told = given.partition("=")
        (where / f"{called}.status").write_text(str(run_one(where, called, json.loads(told))))
