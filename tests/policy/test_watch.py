"""Live reload: edits, invalid edits, editors that write in two steps, and a ConfigMap mount as kubelet swaps it."""

import asyncio
import os
import shutil

import pytest

from webhook.policy.documents import PolicyError
from webhook.policy.watch import INTERVAL_SECONDS, PolicyHolder

HEADER = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\n"
TEAM_A = f"{HEADER}teams: [{{name: a, namespaces: [a]}}]\n"
TEAM_B = f"{HEADER}teams: [{{name: b, namespaces: [b]}}]\n"
BROKEN = f"{HEADER}teams: [{{name: a}}]\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "policy" / "a.yaml"
    path.parent.mkdir()
    path.write_text(TEAM_A)
    return path


def teams(holder):
    return [team.name for team in holder.current.teams]


def settle(holder):
    """Poll until nothing changes: an edit counts from the second poll on."""
    return [holder.check() for _ in range(3)]


def test_edit_is_applied_at_the_second_poll(file):
    holder = PolicyHolder(file.parent)
    file.write_text(TEAM_B)
    assert [holder.check() for _ in range(3)] == [False, True, False]
    assert (teams(holder), holder.problem) == (["b"], None)


def test_invalid_edit_keeps_the_last_valid_policy_until_it_is_corrected(file):
    holder = PolicyHolder(file.parent)
    file.write_text(BROKEN)
    assert settle(holder) == [False, False, False]
    assert teams(holder) == ["a"]
    assert holder.problem is not None
    assert "a.yaml:3: teams[0].namespaces: a team needs" in holder.problem
    file.write_text(TEAM_A)
    assert settle(holder) == [False, False, False]
    assert (teams(holder), holder.problem) == (["a"], None)
    file.write_text(TEAM_B)
    settle(holder)
    assert teams(holder) == ["b"]


def test_edit_of_a_comment_changes_nothing(file):
    holder = PolicyHolder(file.parent)
    before = holder.current
    file.write_text(f"# hello\n{TEAM_A}")
    assert settle(holder) == [False, False, False]
    assert holder.current is before


def test_truncated_file_is_not_applied(file):
    (file.parent / "b.yaml").write_text(TEAM_B)
    holder = PolicyHolder(file.parent)
    file.write_text("")
    assert not holder.check()
    file.write_text(TEAM_A.replace("[a]", "[c]"))
    assert settle(holder) == [False, True, False]
    assert (teams(holder), holder.current.teams[0].namespaces, holder.problem) == (["a", "b"], ("c",), None)


def test_briefly_missing_folder_is_not_a_problem(file):
    holder = PolicyHolder(file.parent)
    aside = file.parent.with_name("aside")
    file.parent.rename(aside)
    assert not holder.check()
    aside.rename(file.parent)
    assert settle(holder) == [False, False, False]
    assert (teams(holder), holder.problem) == (["a"], None)


def test_missing_folder_is_reported_and_the_policy_kept(file):
    holder = PolicyHolder(file.parent)
    shutil.rmtree(file.parent)
    settle(holder)
    assert teams(holder) == ["a"]
    assert holder.problem is not None
    assert "No such file or directory" in holder.problem


def test_holder_does_not_start_without_a_valid_policy(file):
    file.write_text(BROKEN)
    with pytest.raises(PolicyError):
        PolicyHolder(file.parent)


def publish(mount, generation, content):
    """Swap a ConfigMap mount as kubelet's AtomicWriter does: new folder, new link, rename over `..data`."""
    data = mount / f"..2026_{generation}"
    data.mkdir()
    for name, text in content.items():
        (data / name).write_text(text)
    old = (mount / "..data").resolve() if (mount / "..data").exists() else None
    (mount / "..data_tmp").symlink_to(data.name)
    os.replace(mount / "..data_tmp", mount / "..data")
    for name in content:
        if not (mount / name).is_symlink():
            (mount / name).symlink_to(f"..data/{name}")
    for entry in mount.iterdir():
        if not entry.name.startswith("..") and entry.name not in content:
            entry.unlink()
    if old is not None:
        shutil.rmtree(old)


async def test_config_map_edit_is_applied(tmp_path):
    publish(tmp_path, 1, {"a.yaml": TEAM_A, "x.yaml": HEADER})
    holder = PolicyHolder(tmp_path)
    assert INTERVAL_SECONDS <= 1
    changed, problems = asyncio.Event(), []
    loop = asyncio.create_task(holder.run(lambda _policy: changed.set(), problems.append))
    try:
        await asyncio.sleep(0.1)
        publish(tmp_path, 2, {"a.yaml": TEAM_B})
        await asyncio.wait_for(changed.wait(), timeout=30)
    finally:
        loop.cancel()
    assert (teams(holder), problems) == (["b"], [])


async def test_loop_survives_every_change_of_the_folder(file):
    reported = asyncio.Queue()
    holder = PolicyHolder(file.parent)

    async def next_report():
        return await asyncio.wait_for(reported.get(), timeout=30)

    def on_change(policy):
        reported.put_nowait([team.name for team in policy.teams])

    def on_problem(problems):
        reported.put_nowait(problems[0].message.partition(":")[0])

    loop = asyncio.create_task(holder.run(on_change, on_problem, interval=0.02))
    try:
        file.write_text(BROKEN)
        want = "a team needs namespaces or a namespaceSelector; without them no pod can belong to it"
        assert await next_report() == want
        shutil.rmtree(file.parent)
        assert (await next_report()).startswith("cannot read")
        file.parent.mkdir()
        assert await next_report() == "no policy files"
        file.write_text(TEAM_A)
        assert await next_report() == ["a"]
        file.write_text(TEAM_B)
        assert await next_report() == ["b"]
        assert not loop.done()
    finally:
        loop.cancel()
