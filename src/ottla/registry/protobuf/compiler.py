"""Talks to the worker that runs protoc: starts it, waits for its answers for a bounded time, and replaces it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.registry.errors import CompilerFailed, InvalidSchema
from ottla.registry.limits import MAX_SCHEMA_BYTES
from ottla.registry.protobuf.model import Answer, FileModel

_TIMEOUT_S: Final = 5.0
_START_TIMEOUT_S: Final = 30.0
_MAX_ANSWER_BYTES: Final = 64 << 20
_MAX_BRACES: Final = 100


@dataclass(frozen=True, slots=True)
class ProtoSchema:
    """A compiled schema."""

    text: str
    canonical: str
    serialized: str
    model: FileModel
    files: Mapping[str, str]
    """The texts of all files that it imports, by their names."""


class Compiler:
    """One worker at a time; it starts with the first schema."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._fresh = True
        self._lock = threading.Lock()

    def compile(self, text: str, files: Mapping[str, str]) -> ProtoSchema:
        """Compile a schema with the files that it imports; InvalidSchema with protoc's reason if it fails."""
        if len(text) + sum(map(len, files.values())) > MAX_SCHEMA_BYTES:
            raise InvalidSchema(f"with its imports it has more than {MAX_SCHEMA_BYTES} characters")
        _check_nesting(text)
        with self._lock:
            answer = self._ask(json.dumps({"text": text, "files": dict(files)}).encode() + b"\n")
        done = answer["done"]
        if done is None:
            raise InvalidSchema(answer["error"] or "protoc refuses it without a reason")
        return ProtoSchema(done["text"], done["canonical"], done["serialized"], done["model"], dict(files))

    def _ask(self, request: bytes) -> Answer:
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        limit_s = _START_TIMEOUT_S if self._fresh else _TIMEOUT_S
        try:
            process.stdin.write(request)
            process.stdin.flush()
            line = self._read_line(process.stdout.fileno(), time.monotonic() + limit_s)
        except TimeoutError:
            self.close()
            raise CompilerFailed(f"protoc does not compile it within {limit_s:g} s") from None
        except OSError:
            self.close()
            raise CompilerFailed("protoc ends without an answer: it may need too much memory") from None
        self._fresh = False
        found: Answer = json.loads(line)
        return found

    @staticmethod
    def _read_line(number: int, deadline: float) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([number], [], [], left)[0]:
                raise TimeoutError
            part = os.read(number, 1 << 20)
            size += len(part)
            if not part or size > _MAX_ANSWER_BYTES:
                raise OSError("the worker ended")
            parts.append(part)
            if part.endswith(b"\n"):
                return b"".join(parts)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._fresh = True
            command = [sys.executable, "-m", "ottla.registry.protobuf.worker"]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        return self._process

    def close(self) -> None:
        """End the worker."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue


def _check_nesting(text: str) -> None:
    depth = 0
    for char in text:
        if char == "{":
            depth += 1
            if depth > _MAX_BRACES:
                raise InvalidSchema(f"it nests deeper than {_MAX_BRACES} braces")
        elif char == "}":
            depth = max(0, depth - 1)
