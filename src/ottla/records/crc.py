"""CRC-32C (`crc32c(data, crc=0)`), loaded from the extension module of the crc32c package.

The package's `__init__` imports `importlib.metadata` to look up its own version, and a command line. That takes 15 to
30 ms of the start of a broker, a tenth of its time to the first answer; the extension module alone takes 0.4 ms. So
this module finds the package without importing it and loads `crc32c._crc32c` by itself. Should a later version of the
package have no such module, the package is imported as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

Crc = Callable[..., int]
"""`crc32c(data, crc=0)`: the checksum, continued from an earlier one."""


def _load() -> Crc:
    package = find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("crc32c._crc32c", places)
    if spec is None or spec.loader is None:
        from crc32c import crc32c as packaged

        return packaged
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Crc = module.crc32c
    return function


crc32c = _load()
