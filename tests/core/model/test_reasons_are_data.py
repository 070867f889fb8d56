"""Reasons are data: constant words with facts, of which one renderer makes text that no code reads back."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs import pages
from webhook.cli import codes
from webhook.core.model.amounts import ONE_GPU, ResourceName
from webhook.core.model.reasons import (
    Code,
    Reason,
    Resource,
    Statement,
    cause_of,
    facts_json,
    places_of,
    read_statement,
    statement_json,
    waits_for,
)

SOURCES = sorted((pages.ROOT / "webhook").rglob("*.py"))
GUARDS = pages.ROOT / "webhook" / "kube" / "registration" / "templates"
MAKERS = {"Reason", "Statement"}
PARSERS = {
    *("partition", "rpartition", "split", "rsplit", "splitlines", "removeprefix", "removesuffix", "replace"),
    *("startswith", "endswith", "find", "rfind", "index", "count"),
}
OF_RE = {"match", "fullmatch", "search", "sub", "split", "findall", "finditer"}
TEXTS = {"text", "why", "cause", "message"}
FOREIGN = {
    "webhook/kube/pod/existing.py",  # what kube-scheduler wrote on a pod
    "webhook/kube/objects/objects.py",  # what msgspec says of an object
    "webhook/cli/policy.py",  # where in a file a problem is
    "webhook/cli/review/formats/formats.py",  # escapes
    "webhook/cli/tryout.py",  # a review as JSON
    "webhook/http/server.py",  # an error of aiohttp
}
"""Files that read texts of others, or escape their own."""


def where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(pages.ROOT)}:{getattr(node, 'lineno', 0)}"


def name_of(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def values_of(name: str, scope: ast.AST, line: int) -> list[ast.expr]:
    """What a name was last given in a function before a line, or in a module, and what was added to that."""
    given: list[tuple[int, bool, ast.expr]] = []
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                given.append((node.lineno, False, value))
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = zip(names, values, strict=True)
                given += ((node.lineno, False, value) for each, value in pairs if getattr(each, "id", "") == name)
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                given.append((node.lineno, False, value))
            case ast.AugAssign(target=ast.Name(id=found), value=value) if found == name:
                given.append((node.lineno, True, value))
    before = sorted(each[:2] for each in given if each[0] <= line or isinstance(scope, ast.Module))
    since = max((at for at, is_added in before if not is_added), default=0)
    return [value for at, _, value in given if at >= since and (at, False) <= (max(line, since), True)]


def constants(words: ast.expr, scopes: tuple[ast.AST, ...]) -> list[str] | None:
    """The constant texts of which words are made; None where they are made of anything else."""
    match words:
        case ast.Constant(value=str() as text):
            return [text]
        case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, op=ast.Add(), right=other):
            parts = [constants(one, scopes), constants(other, scopes)]
            return None if None in parts else [text for part in parts for text in part or ()]
        case ast.Name(id=name):
            for scope in scopes:
                if values := values_of(name, scope, words.lineno):
                    parts = [constants(value, scopes) for value in values]
                    return None if None in parts else [text for part in parts for text in part or ()]
    return None


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def made() -> list[tuple[Path, ast.Call, int, tuple[ast.AST, ...]]]:
    """Every reason and statement that the code makes: where, the call, the place of its words, and what encloses it."""
    found = []
    for path in SOURCES:
        is_theirs = path.name == "reasons.py"
        if not is_theirs and any(f"{maker}(" in path.read_text() for maker in MAKERS):
            tree = tree_of(path)
            found += ((path, *each) for each in calls_in(tree, (tree,)))
    return found


def calls_in(node: ast.AST, scopes: tuple[ast.AST, ...]) -> Iterator[tuple[ast.Call, int, tuple[ast.AST, ...]]]:
    for child in ast.iter_child_nodes(node):
        inner = (child, *scopes) if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else scopes
        if isinstance(child, ast.Call) and name_of(child.func) in MAKERS:
            yield child, ("Statement", "Reason").index(name_of(child.func)), scopes
        yield from calls_in(child, inner)


FACTS = {
    "gpus": 3 * ONE_GPU,
    "GPUs": 3 * ONE_GPU,
    "exact": 3 * ONE_GPU,
    "limit": 3 * ONE_GPU,
    "and": ("a", "b"),
    ";": ("a", Statement("b {n}", {"n": 2})),
    "quoted": "a",
    "bare": Resource(ResourceName("memory"), 1 << 30),
    "": "x",
}


def is_read_from_a_pod(call: ast.Call) -> bool:
    return any(isinstance(each, ast.Starred) for each in call.args)


def test_words_are_constant_and_have_a_fact_for_each_place():
    wrong = []
    for path, call, at, scopes in made():
        if is_read_from_a_pod(call) or len(call.args) <= at:
            continue
        texts = constants(call.args[at], scopes)
        if texts is None:
            wrong.append(f"{where(path, call)}: the words are not constant")
            continue
        facts = call.args[at + 1] if len(call.args) > at + 1 else ast.Dict([], [])
        if isinstance(facts, ast.Dict) and all(isinstance(key, ast.Constant) for key in facts.keys):
            keys = {key.value for key in facts.keys if isinstance(key, ast.Constant)}
            missing = {name for text in texts for name, _ in places_of(text)} - keys
            wrong += [f"{where(path, call)}: no fact {name}" for name in sorted(missing)]
    assert not wrong, "\n".join(wrong)


def test_every_statement_is_written_and_comes_back_from_json():
    seen = set()
    for _, call, at, scopes in made():
        if is_read_from_a_pod(call) or len(call.args) <= at:
            continue
        for words in constants(call.args[at], scopes) or ():
            said = Statement(words, {name: FACTS.get(how, 2) for name, how in places_of(words)})
            assert "{" not in said.text
            assert facts_json(said).keys() == said.facts.keys()
            assert read_statement(statement_json(said)) == said
            seen.add(words)
    assert len(seen) > 100


def test_every_code_is_used_and_has_a_cause_and_a_remedy():
    texts = [path.read_text() for path in SOURCES if path.name != "reasons.py"]
    used = {name for text in texts for name in re.findall(r"\bCode\.([A-Z_]+)", text)}
    of_guards = "".join(path.read_text() for path in GUARDS.glob("*.yaml"))
    assert {code.name for code in Code} == used | {code.name for code in Code if f"({code})" in of_guards}
    assert set(codes.load_help()) == set(Code)


def reads_text(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield where code takes apart a text for people, or looks for something in it."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=args):
                is_parser = attr in PARSERS and is_text(value)
                is_pattern = attr in OF_RE and not isinstance(value, ast.Constant) and any(map(is_text, args))
                if is_parser or is_pattern:
                    yield node
            case ast.Compare(ops=ops, comparators=found) if any(isinstance(op, ast.In | ast.NotIn) for op in ops):
                if any(map(is_text, found)):
                    yield node


def is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Attribute) and value.attr in TEXTS and not isinstance(value.value, ast.Call)


@pytest.mark.slow
def test_no_code_reads_text_back():
    read = re.compile(rf"\.(?:{'|'.join(TEXTS)})\b")
    paths = [path for path in SOURCES if str(path.relative_to(pages.ROOT)) not in FOREIGN]
    assert [
        where(path, node) for path in paths if read.search(path.read_text()) for node in reads_text(tree_of(path))
    ] == []


@pytest.mark.parametrize(
    "line", ['reason.text.partition("; ")', '"x" in judged.cause', "_SIZE.sub('', each.text)", "re.match('x', a.why)"]
)
def test_the_check_finds_what_reads_text_back(line):
    assert list(reads_text(ast.parse(line)))


def test_a_reason_to_wait_keeps_its_cause_apart_from_the_place():
    cause = Statement("no node has {resource} free now", {"resource": Resource(ResourceName("nvidia.com/gpu"), 8)})
    reason = waits_for(Code.WAITS_FOR_ROOM, cause, place=3)
    assert reason.text == "waits: no node has nvidia.com/gpu 8 free now; 3rd in the queue"
    assert cause_of(reason) == cause
    assert cause_of(Reason(Code.NEVER_FITS, *cause)) == cause
