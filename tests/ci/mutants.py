"""Mutation by sample: does a test fail when one operator or number of the code is another one?

`python -m tests.ci.mutants --count 60 --seed 1 webhook/core` changes one place at a time in a copy of the repository,
runs the fast tests that import its module, then those of its folder and the cases, and prints the mutants that no test
finds. Each of them is a missing test, a worthless one, or a change that changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import kubernetes_asyncio
import pydantic
import pytest

PRELOADED = (aiohttp, kubernetes_asyncio, pydantic)  # for the forks, which import all of the code again
ROOT = Path(__file__).parents[2]
SECONDS = 240
FAILED = 1
OTHER = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.And: "or",
    ast.Or: "and",
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Mutant(NamedTuple):
    """One change of a file: the text from `start` to `end` becomes `new`."""

    path: Path
    line: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.old!r} -> {self.new!r}"


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file."""
    source = path.read_text()
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in ast.walk(ast.parse(source)):
        new = changed(node)
        if new is not None and (old := ast.get_source_segment(source, node)) is not None and "\n" not in old:
            start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            yield Mutant(path.relative_to(ROOT), node.lineno, start, end, old, new)


def changed(node: ast.AST) -> str | None:
    """The text of an expression with another operator, number or function; None where there is none."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in OTHER:
            return f"{ast.unparse(left)} {OTHER[type(op)]} {ast.unparse(right)}"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OTHER and not isinstance(right, ast.JoinedStr):
            return f"({ast.unparse(left)} {OTHER[type(op)]} {ast.unparse(right)})"
        case ast.BoolOp(op=op, values=[left, *rest]):
            return "({})".format(f" {OTHER[type(op)]} ".join(map(ast.unparse, (left, *rest))))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"bool({ast.unparse(operand)})"
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in NAMES:
            return f"{NAMES[name]}({', '.join(map(ast.unparse, args))})"
        case ast.Constant(value=bool() as value):
            return str(not value)
        case ast.Constant(value=int() as value):
            return str(value + 1)
    return None


def tests_of(path: Path) -> list[list[str]]:
    """The files that import a module, then the folder of its tests, then the cases as data."""
    module, room = ".".join(path.with_suffix("").parts), Path("tests", *path.parent.parts[1:])
    package, _, name = module.rpartition(".")
    words = (f"from {module} import", f"from {package} import {name}\n")
    files = [each for each in sorted((ROOT / "tests").rglob("test_*.py")) if any(w in each.read_text() for w in words)]
    importing = [str(each.relative_to(ROOT)) for each in files]
    return [found for found in (importing, [str(room)] if (ROOT / room).is_dir() else [], ["tests/cases"]) if found]


def is_found(mutant: Mutant, copy: Path) -> bool:
    """Whether a test fails, or does not end."""
    changing = copy / mutant.path
    original = changing.read_bytes()
    changing.write_bytes(original[: mutant.start] + mutant.new.encode() + original[mutant.end :])
    try:
        return any(fails(files, copy) for files in tests_of(mutant.path))
    finally:
        changing.write_bytes(original)
        for compiled in (changing.parent / "__pycache__").glob(f"{changing.stem}.*"):
            compiled.unlink()  # it would be used for the next mutant of the same second and length


def fails(files: list[str], copy: Path) -> bool:
    """Whether one of these tests fails, in a process of their own."""
    pid = os.fork()
    if pid == 0:
        status = FAILED
        try:
            status = run(files, copy)
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def run(files: list[str], copy: Path) -> int:
    """Run tests in the copy, without a word."""
    os.chdir(copy)
    signal.alarm(SECONDS)
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.dup2(devnull, 2)
    sys.path[:] = [str(copy), *(each for each in sys.path if each not in ("", str(ROOT)))]
    for name in [each for each in sys.modules if each.partition(".")[0] in ("tests", "webhook", "certs")]:
        del sys.modules[name]
    options = ["-x", "-q", "--reruns=0", "-p", "no:cacheprovider", "-m", "not cluster and not long and not slow"]
    return int(pytest.main([*options, *files]))


def main() -> int:
    """Print the mutants that no test finds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    paths = sorted(path for folder in given.folders for path in (ROOT / folder).rglob("*.py"))
    sample = random.Random(given.seed).sample([each for path in paths for each in mutants(path)], given.count)
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        ignored = shutil.ignore_patterns(".*", "__pycache__", "*.pyc")
        shutil.copytree(ROOT, copy, ignore=ignored)
        for number, mutant in enumerate(sample, start=1):
            found = is_found(mutant, copy)
            survivors += not found
            print(f"{number:4} {'found   ' if found else 'SURVIVED'} {mutant}", flush=True)  # noqa: T201
    print(f"{survivors} of {len(sample)} mutants were not found (seed {given.seed})")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
