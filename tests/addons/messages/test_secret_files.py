"""Secrets from the mounted folder, and no other file."""

import pytest

from webhook.addons.messages.delivery import MAX_BYTES, SecretError, read_line, read_secret


def mounted(folder, **files):
    """Make a folder as kubelet mounts a Secret: names are links to a folder that a link names."""
    hidden = folder / "..2026_11_26"
    hidden.mkdir(parents=True)
    data = folder / "..data"
    data.unlink(missing_ok=True)
    data.symlink_to(hidden.name)
    for name, content in files.items():
        (hidden / name).write_bytes(content)
        (folder / name).symlink_to(f"..data/{name}")
    return folder


def test_a_mounted_secret_is_read_and_its_rotation_is_seen(tmp_path):
    folder = mounted(tmp_path / "s", token=b"first\n")
    assert read_line(folder, "token") == "first"
    (folder / "..new").mkdir()
    (folder / "..new" / "token").write_bytes(b"second")
    (folder / "..tmp").symlink_to("..new")
    (folder / "..tmp").rename(folder / "..data")
    assert read_line(folder, "token") == "second"


def test_no_file_outside_the_folder_is_read(tmp_path):
    folder = mounted(tmp_path / "s", token=b"x")
    (tmp_path / "other").write_text("secret of the ServiceAccount")
    (folder / "link").symlink_to(tmp_path / "other")
    for name in ("link", "../other", str(tmp_path / "other")):
        with pytest.raises(SecretError, match="leads out of the folder"):
            read_secret(folder, name)


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", "caf\xe9".encode(), b"\x00"], ids=repr)
def test_what_is_no_header_is_refused_without_being_shown(tmp_path, content):
    folder = mounted(tmp_path / "s", token=content)
    with pytest.raises(
        SecretError, match=r"^file token of the folder of secrets: expected one line of printable ASCII"
    ):
        read_line(folder, "token")


def test_what_is_missing_or_too_large_is_named(tmp_path):
    folder = mounted(tmp_path / "s", big=b"x" * (MAX_BYTES + 1))
    with pytest.raises(SecretError, match="file token of the folder of secrets: No such file"):
        read_line(folder, "token")
    with pytest.raises(SecretError, match="larger than"):
        read_secret(folder, "big")
    with pytest.raises(SecretError, match="no folder of secrets"):
        read_secret(None, "token")
