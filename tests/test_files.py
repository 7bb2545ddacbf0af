"""Files that are whole or not there."""

import os

import pytest

from conqur._files import is_partial, replacing


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_whole_through_links_and_with_the_old_mode(tmp_path):
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    page.write_text("old")
    page.chmod(0o640)
    link.symlink_to(page)
    with replacing(link) as file:
        file.write("new θ".encode())
        file.flush()
        assert page.read_text() == "old"
        (partial,) = set(names(tmp_path)) - {"page.html", "link.html"}
        assert is_partial(partial)
        assert os.path.samefile(file.name, tmp_path / partial)
    assert link.is_symlink()
    assert page.read_text(encoding="utf-8") == "new θ"
    assert page.stat().st_mode & 0o777 == 0o640
    assert names(tmp_path) == ["link.html", "page.html"]


def test_new_files_have_the_mode_of_new_files(tmp_path):
    with replacing(tmp_path / "a") as file:
        file.write(b"a")
    (tmp_path / "b").write_bytes(b"b")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("old", [b"old", None])
def test_what_fails_leaves_no_trace(tmp_path, error, old):
    path = tmp_path / "file"
    if old is not None:
        path.write_bytes(old)
    before = names(tmp_path)

    def write():
        with replacing(path) as file:
            file.write(b"new")
            raise error

    with pytest.raises(error):
        write()
    assert names(tmp_path) == before
    assert old is None or path.read_bytes() == old


def test_two_at_once_do_not_meet(tmp_path):
    path = tmp_path / ("ä" * 127)  # 254 bytes, nearly the longest name
    with replacing(path) as first, replacing(path) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_bytes() == b"first"  # the one that ended last
    assert names(tmp_path) == [path.name]


def test_durable_before_it_has_its_name(tmp_path, monkeypatch):
    done = []
    path = tmp_path / "file"

    def fsync(handle):
        done.append("folder" if os.path.isdir(f"/dev/fd/{handle}") else "file")
        assert path.exists() == (done[-1] == "folder")

    monkeypatch.setattr(os, "fsync", fsync)
    with replacing(path) as file:
        file.write(b"x")
    assert done == []
    path.unlink()
    with replacing(path, durable=True) as file:
        file.write(b"x")
    assert done == ["file", "folder"]


def test_only_regular_files_are_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(OSError, match="is no regular file"), replacing(path):
            pass
    assert names(tmp_path) == ["pipe"]


def test_links_that_are_not_followed_are_replaced(tmp_path):
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    page.write_text("old")
    link.symlink_to(page)
    with replacing(link, follow=False) as file:
        file.write(b"new")
    assert (page.read_text(), link.read_text()) == ("old", "new")
    assert not link.is_symlink()
