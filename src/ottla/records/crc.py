"""CRC-32C, from the extension module alone.

Its package looks up its own version among everything that is installed and loads a command line: 15 ms that a broker
would spend before its first answer.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

Crc = Callable[..., int]
"""`crc32c(data, crc=0)`: the checksum, going on from an earlier one."""


def _load() -> Crc:
    package = find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("crc32c._crc32c", places)
    if spec is None or spec.loader is None:
        from crc32c import crc32c as packaged

        return packaged
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Crc = module.crc32c
    return function


crc32c = _load()
