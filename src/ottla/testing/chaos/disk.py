"""A small disk for one node, which can be filled completely: a tmpfs mounted on its directory. Needs root."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

SIZE_BYTES: Final = 96 << 20
_BALLAST: Final = "ballast"
_CHUNK: Final = bytes(64 << 10)


class SmallDisk:
    """Mounted when created. `fill` uses all free space, `free` releases it."""

    def __init__(self, directory: Path, size_bytes: int = SIZE_BYTES) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        options = f"size={size_bytes}"
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "ottla-chaos", str(directory)],
            check=True,
            capture_output=True,
        )

    def fill(self) -> None:
        with contextlib.suppress(OSError), (self.directory / _BALLAST).open("ab", buffering=0) as file:
            while True:
                self._write(file.fileno())

    @staticmethod
    def _write(handle: int) -> None:
        """Write as much as fits, in ever smaller pieces."""
        size = len(_CHUNK)
        while True:
            try:
                os.write(handle, _CHUNK[:size])
                return
            except OSError as error:
                if error.errno != errno.ENOSPC or size == 1:
                    raise
                size //= 2

    def free(self) -> None:
        (self.directory / _BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.directory)], check=False, capture_output=True)


def usable() -> bool:
    return os.geteuid() == 0 and shutil.which("mount") is not None
