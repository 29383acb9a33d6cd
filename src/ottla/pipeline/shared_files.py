"""Small files in a directory that all machines of a job see: a local path, or what Arrow's file systems reach.

Each file is written whole and then renamed, so that a reader never sees half of one. A local file is on disk when
`write` returns.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from ottla.pipeline.failures import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO, Protocol

    class _Entry(Protocol):
        base_name: str

    class _ArrowFiles(Protocol):
        """The part of `pyarrow.fs.FileSystem` that is used here."""

        def create_dir(self, path: str, *, recursive: bool) -> None: ...
        def open_output_stream(self, path: str) -> BinaryIO: ...
        def open_input_stream(self, path: str) -> BinaryIO: ...
        def get_file_info(self, selector: object) -> list[_Entry]: ...
        def move(self, source: str, target: str) -> None: ...
        def delete_file(self, path: str) -> None: ...


class SharedFiles:
    """The files of one directory, which is created with the first file."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        parts = urlsplit(directory)
        self._arrow: _ArrowFiles | None = None
        if parts.scheme in ("", "file"):
            self._path = parts.path
        else:
            self._arrow, self._path = _arrow_files(directory)

    def write(self, name: str, data: bytes) -> None:
        """Write a file, in place of an older one of this name."""
        target, part = f"{self._path}/{name}", f"{self._path}/.{name}.part"
        if self._arrow is not None:
            self._arrow.create_dir(self._path, recursive=True)
            with self._arrow.open_output_stream(part) as stream:
                stream.write(data)
            self._arrow.move(part, target)
            return
        Path(self._path).mkdir(parents=True, exist_ok=True)
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
        handle = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def read(self, name: str) -> bytes | None:
        """A file's content; None if there is no such file."""
        try:
            if self._arrow is None:
                return Path(self._path, name).read_bytes()
            with self._arrow.open_input_stream(f"{self._path}/{name}") as stream:
                return stream.read()
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        """The names of all files, in order."""
        return sorted(name for name in self._names() if not name.startswith("."))

    def _names(self) -> Iterator[str]:
        if self._arrow is None:
            if os.path.isdir(self._path):
                yield from os.listdir(self._path)
            return
        from pyarrow.fs import FileSelector

        for entry in self._arrow.get_file_info(FileSelector(self._path, allow_not_found=True)):
            yield entry.base_name

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        try:
            if self._arrow is None:
                os.unlink(f"{self._path}/{name}")
            else:
                self._arrow.delete_file(f"{self._path}/{name}")
        except FileNotFoundError:
            return


def _arrow_files(directory: str) -> tuple[_ArrowFiles, str]:
    from pyarrow import ArrowInvalid
    from pyarrow.fs import FileSystem

    try:
        files, path = FileSystem.from_uri(directory)
    except (ArrowInvalid, OSError) as error:
        raise PipelineError(f"the checkpoint directory {directory} cannot be reached: {error}") from None
    return cast("_ArrowFiles", files), str(path)
