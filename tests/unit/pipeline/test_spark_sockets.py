"""Unix sockets between Spark's JVM and its Python workers: only in a directory that nobody else can enter."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from ottla.pipeline.python_daemon import Traces
from ottla.pipeline.session import _unix_sockets


def test_the_directory_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path(tempfile.mkdtemp(prefix="s"))
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    found = _unix_sockets()
    directory = Path(found["spark.python.unix.domain.socket.dir"])
    assert found["spark.python.unix.domain.socket.enabled"] == "true"
    assert directory.parent == home
    assert directory.stat().st_mode & 0o777 == 0o700
    assert _unix_sockets() == found
    directory.chmod(0o755)
    assert _unix_sockets() == {}
    directory.rmdir()
    (home / "other").mkdir(mode=0o700)
    directory.symlink_to(home / "other")
    assert _unix_sockets() == {}


def test_a_path_too_long_for_a_socket_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / ("d" * 60)
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    assert _unix_sockets() == {}
    assert not list(home.iterdir())


def test_a_worker_whose_socket_was_closed_leaves_no_trace(capsys: pytest.CaptureFixture[str]) -> None:
    for error in (BrokenPipeError(), ValueError("a fault of the worker")):
        try:
            raise error
        except (OSError, ValueError):
            Traces.print_exc()
    shown = capsys.readouterr().err
    assert "a fault of the worker" in shown and "BrokenPipeError" not in shown
