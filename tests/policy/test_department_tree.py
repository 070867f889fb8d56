"""The tree of departments: what is wrong with one, and what is built of a good one."""

import pytest

from tests.core.support.make import gpus
from webhook.core.model.amounts import UNLIMITED
from webhook.core.model.policy import Share
from webhook.policy.documents import PolicyError
from webhook.policy.watch import load

TEAM = "teams: [{name: a, namespaces: [a], department: %s}]\n"
HOLDS_8 = "teams: [{name: a, namespaces: [a], department: d, gpus: {guaranteed: 8}, models: {A100: {guaranteed: 6}}}]\n"

PROBLEMS = {
    "an unknown department": (
        TEAM % "reserch" + "departments: [{name: research}]",
        '3: teams[0].department: unknown department: expected research; got "reserch"; did you mean "research"?',
    ),
    "a department, and none declared": (
        TEAM % "research",
        "3: teams[0].department: unknown department: no department is declared",
    ),
    "an unknown parent": (
        "departments: [{name: nlp, parent: research}, {name: search}]",
        '3: departments[0].parent: unknown department: expected one of nlp, search; got "research"; did you mean'
        ' "search"?',
    ),
    "a department that is its own parent": (
        "departments: [{name: d, parent: d}]",
        '3: departments[0].parent: "d" cannot be its own parent; leave parent out for a department at the top',
    ),
    "a cycle, reported once": (
        "departments:\n- {name: a, parent: b}\n- {name: b, parent: c}\n- {name: c, parent: a}\n- {name: d, parent: a}",
        "4: departments[0].parent: departments form a cycle: a below b below c below a; remove one parent",
    ),
    "teams that are guaranteed more than their department": (
        HOLDS_8 + "departments: [{name: d, gpus: {guaranteed: 4, limit: 10}}]",
        "4: departments[0].gpus.guaranteed: guaranteed 4 is less than its children are guaranteed together, 8"
        " (team a 8); raise it to 8 or lower theirs",
    ),
    "departments that are guaranteed more than their parent": (
        HOLDS_8
        + "departments:\n- {name: top, gpus: {guaranteed: 9}}\n- {name: d, parent: top, gpus: {guaranteed: 8}}\n"
        "- {name: e, parent: top, gpus: {guaranteed: 2.5}}",
        "5: departments[0].gpus.guaranteed: guaranteed 9 is less than its children are guaranteed together, 10.5"
        " (department d 8, department e 2.5); raise it to 10.5 or lower theirs",
    ),
    "a model of which children are guaranteed more": (
        HOLDS_8 + "departments: [{name: d, models: {A100: {guaranteed: 5}}}]",
        "4: departments[0].models.A100.guaranteed: guaranteed 5 is less than its children are guaranteed together, 6"
        " (team a 6); raise it to 6 or lower theirs",
    ),
    "a limit below the guaranteed share": (
        "departments: [{name: d, gpus: {guaranteed: 5, limit: 4}}]",
        "3: departments[0].gpus: guaranteed 5 is more than limit 4; raise the limit or lower the guaranteed share",
    ),
    "a limit below the guaranteed shares of the children": (
        HOLDS_8 + "departments: [{name: d, gpus: {limit: 7}}]",
        "4: departments[0].gpus.limit: limit 7 is below what its children are guaranteed together, 8 (team a 8);"
        " raise it to 8 or lower theirs",
    ),
    "models that guarantee more than the department's limit": (
        "departments: [{name: d, gpus: {limit: 4}, models: {A: {guaranteed: 3}, B: {guaranteed: 2}}}]",
        "3: departments[0].models: models guarantee 5 together, but the department's limit is 4; raise it or lower"
        " them",
    ),
    "a weight of zero": (
        "departments: [{name: d, weight: 0}]",
        "3: departments[0].weight: expected a weight above 0, and at most 1,000,000, got 0",
    ),
    "a weight below zero": (
        "departments: [{name: d, weight: -2}]",
        "3: departments[0].weight: expected a weight above 0, and at most 1,000,000, got -2",
    ),
    "a weight that is no number": (
        "departments: [{name: d, weight: heavy}]",
        '3: departments[0].weight: expected a weight such as 2, 0.5 or "1/3", got "heavy"',
    ),
    "a team in two departments": (
        TEAM % "[d, e]" + "departments: [{name: d}, {name: e}]",
        "3: teams[0].department: a team belongs to one department, got a list of 2; name one",
    ),
    "a department that is declared twice": (
        "departments:\n- {name: d}\n- {name: d, gpus: {limit: 3}}",
        '5: departments[1].name: "d" is already declared at a.yaml:4; keep one',
    ),
    "nine levels": (
        "departments:\n" + "\n".join(f"- {{name: d{n}{f', parent: d{n - 1}' if n else ''}}}" for n in range(10)),
        "12: departments[8].parent: departments are nested deeper than 8 levels; use fewer",
    ),
}


@pytest.mark.parametrize(("body", "want"), PROBLEMS.values(), ids=PROBLEMS)
def test_the_problem_has_its_line_and_what_would_be_right(folder, body, want):
    with pytest.raises(PolicyError) as caught:
        load(folder(body))
    assert [f"{each.line}: {each.path}: {each.message}" for each in caught.value.problems] == [
        want.replace("a.yaml", str(caught.value.problems[0].file))
    ]


def test_a_department_with_a_problem_of_its_own_is_no_unknown_one(folder):
    with pytest.raises(PolicyError) as caught:
        load(folder(TEAM % "d" + "departments: [{name: d, weight: 0}]"))
    assert [each.path for each in caught.value.problems] == ["departments[0].weight"]


def test_the_tree_is_built_from_any_file(folder):
    policy = load(
        folder(
            HOLDS_8,
            "departments: [{name: d, parent: top, gpus: {limit: 10}}]",
            "departments: [{name: top, gpus: {guaranteed: 20}, models: {A100: {limit: 7}}, weight: 3}]",
        )
    )
    assert [each.name for each in policy.departments] == ["d", "top"]
    (team,) = policy.teams
    nearest, top = team.departments
    assert (nearest.name, nearest.parent, nearest.gpus) == ("d", "top", Share(gpus(8), gpus(10)))
    assert (top.gpus, top.models, top.weight) == (Share(gpus(20), UNLIMITED), {"A100": Share(gpus(6), gpus(7))}, 3)
    assert team.has_model_shares


def test_a_department_with_only_a_guaranteed_share_has_no_limit(folder):
    policy = load(folder("departments: [{name: a, gpus: {guaranteed: 3}}, {name: b, models: {A100: {limit: 3}}}]"))
    assert [each.has_limit for each in policy.departments] == [False, True]


def test_a_policy_without_new_fields_keeps_its_hash(folder):
    """Pods in creation carry the hash: an upgrade must not make their creation a lost race."""
    assert load(folder("teams: [{name: a, namespaces: [a]}]")).hash == "d242d5012bfd"
