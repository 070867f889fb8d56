"""Tests mirror the source: webhook/core/ROOM/MODULE.py is tested by tests/core/ROOM/test_MODULE.py."""

from pathlib import Path

TESTS = Path(__file__).parent
CORE = TESTS.parents[1] / "webhook" / "core"
WITHOUT_BEHAVIOR = {
    "model/claim_ref.py",
    "model/decision.py",
    "model/names.py",
    "model/shape.py",
    "model/tier.py",
    "reclaim/reclaim_plan.py",
}
MODULES = sorted(str(path.relative_to(CORE)) for path in CORE.rglob("*.py") if path.name != "__init__.py")


def test_every_module_with_behavior_has_a_test_file_of_its_name():
    wanted = [TESTS / Path(each).parent / f"test_{Path(each).name}" for each in MODULES if each not in WITHOUT_BEHAVIOR]
    assert [str(path.relative_to(TESTS)) for path in wanted if not path.is_file()] == []


def test_only_modules_without_functions_need_none():
    assert {each for each in MODULES if "def " not in (CORE / each).read_text()} == WITHOUT_BEHAVIOR
