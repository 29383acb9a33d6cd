"""Files that are replaced as a whole: their names are synced too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.connect.whole_files import make_folder, write_whole


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was synced, with the files that its folder had at that moment."""
    seen: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        inside = sorted(one.name for one in path.iterdir()) if path.is_dir() else []
        seen.append(f"{path.name}: {' '.join(inside)}" if path.is_dir() else path.name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return seen


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the test reads names from /proc")
def test_a_file_is_synced_then_renamed_and_its_folder_synced_last(tmp_path: Path, synced: list[str]) -> None:
    write_whole(tmp_path / "note", b"old")
    write_whole(tmp_path / "note", b"new")
    assert synced == [".note.new", f"{tmp_path.name}: note"] * 2
    assert (tmp_path / "note").read_bytes() == b"new"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the test reads names from /proc")
def test_new_folders_are_synced_from_the_top(tmp_path: Path, synced: list[str]) -> None:
    make_folder(tmp_path / "topics" / "orders")
    assert synced == [f"{tmp_path.name}: topics", "topics: orders"]
    make_folder(tmp_path / "topics" / "orders")
    assert len(synced) == 2


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(tmp_path / "note", b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "note", b"new")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("note", b"old")]
