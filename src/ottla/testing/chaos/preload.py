"""Libraries in front of libc in the process of a node, built with the machine's C compiler."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Preload:
    """One library, and the environment that it reads."""

    library: Path
    environment: Mapping[str, str]


def build(directory: Path, name: str, source: str) -> Path:
    """Compile a library in a directory; returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    library, text = directory.resolve() / f"{name}.so", directory / f"{name}.c"
    text.write_text(source)
    words = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(text), "-ldl"]
    subprocess.run(words, check=True, capture_output=True)
    return library


def launcher(preloads: Sequence[Preload]) -> list[str]:
    """The words that come before a command so that it runs with the libraries."""
    if not preloads:
        return []
    words = ["env", "LD_PRELOAD=" + ":".join(str(each.library) for each in preloads)]
    return words + [f"{key}={value}" for each in preloads for key, value in each.environment.items()]


def usable() -> bool:
    """Whether this machine can build and load such libraries."""
    return sys.platform == "linux" and shutil.which("cc") is not None
