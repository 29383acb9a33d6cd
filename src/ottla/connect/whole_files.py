"""Files that are replaced as a whole: a crash or a power loss leaves the old one or the new one."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_whole(path: Path, data: bytes, *, several_writers: bool = False) -> None:
    """Writes a file under another name, then gives it its own. It is on disk when this returns.

    `several_writers`: others may write the same file meanwhile, for example a Spark task that was given up.
    """
    own = f".{secrets.token_hex(4)}" if several_writers else ""
    temporary = path.with_name(f".{path.name}{own}.new")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Makes a folder and the missing ones above it. Their names are on disk when this returns."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Brings the names in a folder to disk."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
