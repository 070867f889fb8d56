"""Problems between the files of one policy: what two of them declare, and what one that cannot be read leaves open."""

import pytest

from tests.policy.queue_problems import TEAM
from tests.policy.test_problems import POOL
from webhook.policy.documents import PolicyError
from webhook.policy.watch import load

ACROSS_FILES = {
    "a team": (
        TEAM % "",
        "teams: [{name: a, namespaces: [z]}]",
        'teams[0].name: "a" is already declared at A; keep one',
    ),
    "a pool": (POOL % "", POOL % "", 'pools[0].name: "p" is already declared at A; keep one'),
    "a team that has another problem": (
        TEAM % ", oops: 1",
        "teams: [{name: a, namespaces: [z]}]",
        'teams[0].name: "a" is already declared at A; keep one',
    ),
    "a section": (
        "placement: {mode: off}",
        "placement: {mode: off}",
        "placement: already set at A; a section may be set in one file only",
    ),
    "a resource": (
        "resources: {a.b/c: {gpus: 1}}",
        "resources: {a.b/c: {gpus: 2}}",
        'resources[a.b/c]: "a.b/c" is already declared at A; keep one',
    ),
    "an exempt namespace": (
        "exempt: {namespaces: [x]}",
        "exempt: {namespaces: [x]}",
        'exempt.namespaces[0]: "x" is already declared at A; keep one',
    ),
    "a namespace": (
        TEAM % "",
        "teams: [{name: b, namespaces: [a]}]",
        'teams[0].namespaces[0]: namespace "a" already belongs to team "a" at A; keep it in one team',
    ),
}


@pytest.mark.parametrize(("first", "second", "want"), ACROSS_FILES.values(), ids=ACROSS_FILES.keys())
def test_duplicate_across_files_names_both_places(folder, first, second, want):
    path = folder(first, second)
    with pytest.raises(PolicyError) as caught:
        load(path)
    reported = [str(problem).replace(f"{path}/a.yaml:3", "A") for problem in caught.value.problems]
    assert f"{path}/b.yaml:3: {want}" in reported


def test_pool_has_no_problem_if_the_file_of_its_team_cannot_be_read(folder):
    with pytest.raises(PolicyError) as caught:
        load(folder(POOL % ", teams: [lost]", "teams: [{name: lost, namespaces: [a]"))
    assert [problem.path for problem in caught.value.problems] == [""]
