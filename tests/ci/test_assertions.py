"""By the source of the tests: each of them checks something, and no check holds whatever the code does."""

import ast
from collections.abc import Iterator
from functools import cache
from itertools import permutations

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow

FAILING = ("pytest.raises", "pytest.warns", "asyncio.timeout", ".wait_for_function", "fnmatch_line", "AssertionError")
"""How the names of calls end that fail by themselves; `asyncio.timeout` ends the wait for what does not come."""


class Module:
    """The functions of a file by name, and which names it imports from where."""

    def __init__(self, source: str) -> None:
        nodes = list(ast.walk(ast.parse(source)))
        self.functions: dict[str, list[ast.AST]] = {}
        for each in nodes:
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions.setdefault(each.name, []).append(each)
        froms = [each for each in nodes if isinstance(each, ast.ImportFrom)]
        plain = [each for each in nodes if isinstance(each, ast.Import)]
        self.origins = {alias.asname or alias.name: str(each.module) for each in froms for alias in each.names}
        self.libraries = {alias.asname or alias.name for each in plain for alias in each.names}
        self.vacuous = [ast.unparse(each) for each in nodes if isinstance(each, ast.Assert) and is_vacuous(each.test)]


class Suite:
    """The files of the tests by their names as modules, and which of their functions check something."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.modules = {name: Module(source) for name, source in sources.items()}
        run = {
            function: [target for call in calls(function) for target in self.targets(name, call)]
            for name, module in self.modules.items()
            for named in module.functions.values()
            for function in named
        }
        self.checking = {each for each in run if is_check(each)}
        while found := {each for each in run if not self.checking.isdisjoint(run[each])} - self.checking:
            self.checking |= found

    def targets(self, module: str, call: ast.expr) -> list[ast.AST]:
        """The functions that a call may run, by its name: of its file, of where that is imported from, of objects."""
        here = self.modules[module]
        if isinstance(call, ast.Name):
            origin = here.origins.get(call.id, module)
            if origin != module:
                return self.targets(origin, call) if origin in self.modules else []
            return here.functions.get(call.id) or self.nearby(module, call.id)
        if isinstance(call, ast.Attribute) and ast.unparse(call.value) not in here.libraries:
            return self.nearby(module, call.attr)
        return []

    def nearby(self, module: str, name: str) -> list[ast.AST]:
        """The functions of a name in what a file can reach."""
        return [each for other in self.reachable(module) for each in self.modules[other].functions.get(name, ())]

    @cache  # noqa: B019  a suite lives as long as its test
    def reachable(self, module: str) -> frozenset[str]:
        """A file, the fixtures of its folders, and what these import, directly or not."""
        parts = module.split(".")
        todo = [module, *(".".join([*parts[:depth], "conftest"]) for depth in range(1, len(parts)))]
        found: set[str] = set()
        while todo:
            each = todo.pop()
            if each in self.modules and each not in found:
                found.add(each)
                origins = self.modules[each].origins
                todo += [*origins.values(), *(f"{origin}.{name}" for name, origin in origins.items())]
        return frozenset(found)

    def unchecked(self) -> list[str]:
        """The tests that only an exception of the code can fail."""
        return [
            f"{module}::{name}"
            for module, found in self.modules.items()
            for name, functions in found.functions.items()
            if name.startswith("test_") and ".test_" in f".{module}" and self.checking.isdisjoint(functions)
        ]


def calls(function: ast.AST) -> Iterator[ast.expr]:
    """What a function calls and does not use, or returns: a helper whose result is used prepares a check only."""
    for each in ast.walk(function):
        if isinstance(each, (ast.Expr, ast.Return)):
            call = each.value.value if isinstance(each.value, ast.Await) else each.value
            if isinstance(call, ast.Call):
                yield call.func
                yield from (argument.func for argument in call.args if isinstance(argument, ast.Call))


def is_check(function: ast.AST) -> bool:
    """Whether a function checks something itself."""
    return any(
        isinstance(each, ast.Assert) or (isinstance(each, ast.Call) and ast.unparse(each.func).endswith(FAILING))
        for each in ast.walk(function)
    )


def is_vacuous(test: ast.expr) -> bool:
    """Whether an expression is true, or as true as a part of it, by its form. Ruff finds constants and `x == x`."""
    match test:
        case ast.GeneratorExp() | ast.Lambda():
            return True
        case ast.Compare(left=ast.Call(func=ast.Name(id="len")), ops=[ast.GtE()], comparators=[ast.Constant(value=0)]):
            return True
        case ast.BoolOp(values=values):
            return any(map(is_vacuous, values)) or any(implies(*pair) for pair in permutations(values, 2))
    return False


def implies(one: ast.expr, other: ast.expr) -> bool:
    """Whether an assertion that a text is in another one follows from that of a longer text."""
    match one, other:
        case (
            ast.Compare(left=ast.Constant(value=str(longer)), ops=[ast.In()], comparators=[there]),
            ast.Compare(left=ast.Constant(value=str(shorter)), ops=[ast.In()], comparators=[here]),
        ):
            return shorter in longer and ast.dump(there) == ast.dump(here)
    return False


def of(source: str, **others: str) -> Suite:
    return Suite({"tests.test_it": source} | {f"tests.{name}": text for name, text in others.items()})


@pytest.mark.parametrize(
    "body",
    [
        "code()",
        "found = checked()",
        "helper.code()",
        "assertions.append(1)",
        "with suppress(ValueError): code()",
    ],
)
def test_a_test_without_a_check_is_found(body):
    source = f"from tests.helper import checked\ndef test_it():\n    {body}\ndef code(): return 1\n"
    helper = "def checked():\n    assert made\n    return made\ndef code(): pass\n"
    assert of(source, helper=helper).unchecked() == ["tests.test_it::test_it"]


@pytest.mark.parametrize(
    "body",
    ["assert code()", "checked()", "await thing.checked()", "with pytest.raises(ValueError): code()", "outer()"],
)
def test_a_test_that_checks_itself_or_by_a_helper_is_not(body):
    source = f"from tests.helper import checked, outer\nasync def test_it(thing):\n    {body}\n"
    helper = "def checked():\n    assert made\n    return made\ndef outer():\n    return checked()\n"
    assert of(source, helper=helper).unchecked() == []


@pytest.mark.parametrize(
    ("test", "want"),
    [
        ("'no node' in text or 'node' in text", True),
        ("'a' in text or 'ab' in text", True),
        ("'a' in text or 'b' in text", False),
        ("'ab' in text or 'a' in other", False),
        ("found and len(found) >= 0", True),
        ("len(found) >= 1", False),
        ("(each for each in found)", True),
        ("lambda: found", True),
        ("any(each for each in found)", False),
    ],
)
def test_a_check_that_holds_by_its_form_is_found(test, want):
    assert bool(of(f"assert {test}").modules["tests.test_it"].vacuous) is want


@pytest.fixture(scope="module")
def suite():
    files = sorted((ROOT / "tests").rglob("*.py"))
    return Suite({".".join(file.relative_to(ROOT).with_suffix("").parts): file.read_text() for file in files})


def test_every_test_checks_something(suite):
    assert suite.unchecked() == []


def test_no_check_holds_by_its_form(suite):
    assert [line for module in suite.modules.values() for line in module.vacuous] == []
