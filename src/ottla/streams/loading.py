"""Loads the Python file of an application, and sends its functions and classes to Spark's workers.

They are pickled by value, so that a worker needs neither the file nor the driver's environment. Entries of state stores
name their class, so a worker gets the classes first, in the modules where pickle looks for them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

from ottla.streams.dsl.builder import StreamsBuilder
from ottla.streams.errors import StreamsError
from ottla.streams.graph.topology import Topology

MODULE: Final = "__ottla_app__"
"""The module name of every application: state stays readable when the file gets another name."""

_MSGSPEC_CACHE: Final = "__msgspec_cache__"


def load_topology(path: Path) -> Topology:
    """The one StreamsBuilder or Topology that a Python file defines."""
    if not path.is_file():
        raise StreamsError(f"there is no file {path}")
    module = ModuleType(MODULE)
    module.__file__ = str(path.resolve())
    sys.modules[MODULE] = module
    beside = str(path.resolve().parent)
    if beside not in sys.path:
        # As with `python app.py`: modules in the same directory can be imported.
        sys.path.insert(0, beside)
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    found = {
        id(value): value for value in vars(module).values() if isinstance(value, (StreamsBuilder, Topology))
    }
    if len(found) != 1:
        raise StreamsError(f"{path} defines {len(found)} StreamsBuilders; an application has one")
    (only,) = found.values()
    return only.build() if isinstance(only, StreamsBuilder) else only


class OwnClasses:
    """The classes that only the driver can import; once unpickled, they are in the modules that pickle looks in."""

    __slots__ = ("by_module",)

    def __init__(self, by_module: dict[str, list[type]] | None = None) -> None:
        self.by_module = by_module or {}

    def __reduce__(self) -> tuple[object, ...]:
        return _arrived, (self.by_module,)


def _arrived(by_module: dict[str, list[type]]) -> OwnClasses:
    for name, classes in by_module.items():
        module = sys.modules.setdefault(name, ModuleType(name))
        for one in classes:
            setattr(module, one.__name__, one)
    return OwnClasses(by_module)


def pickled_by_value(value: object) -> bytes:
    """The bytes that Spark sends to its workers for a value; fails for a value that cannot be pickled."""
    from pyspark.cloudpickle import dumps

    pickled: Callable[[object], bytes] = dumps
    return pickled(value)


def own_classes() -> OwnClasses:
    """The classes of the application's file, of modules in its directory that it imports, and of a script."""
    from pyspark.cloudpickle import register_pickle_by_value

    by_value: Callable[[ModuleType], None] = register_pickle_by_value
    found: dict[str, list[type]] = {}
    for module in _own_modules():
        if module.__name__ != "__main__":
            by_value(module)
        classes = []
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__ == module.__name__:
                _make_ready(value)
                # A class that cannot be pickled is left out; the check of the function that uses it names it.
                with contextlib.suppress(Exception):
                    pickled_by_value(value)
                    classes.append(value)
        if classes:
            found[module.__name__] = classes
    return OwnClasses(found)


def _own_modules() -> list[ModuleType]:
    main, application = sys.modules["__main__"], sys.modules.get(MODULE)
    # A script or an interactive session; `python -c` and the like have no classes of a user.
    own = [main] if hasattr(main, "__file__") or hasattr(sys, "ps1") or "IPython" in sys.modules else []
    if application is None or application.__file__ is None:
        return own
    own.append(application)
    beside = Path(application.__file__).parent
    for name, module in list(sys.modules.items()):
        top = sys.modules.get(name.partition(".")[0])
        file = getattr(top, "__file__", None)
        if isinstance(module, ModuleType) and file is not None and top not in (main, application):
            place = Path(file).parent
            if beside in (place, place.parent if Path(file).name == "__init__.py" else place):
                own.append(module)
    return own


def _make_ready(one: type) -> None:
    if _MSGSPEC_CACHE in vars(one):
        # The cache of msgspec cannot be pickled; msgspec makes it again.
        delattr(one, _MSGSPEC_CACHE)
    annotations = vars(one).get("__annotations__", {})
    if dataclasses.is_dataclass(one) and any(isinstance(kind, str) for kind in annotations.values()):
        with contextlib.suppress(NameError):
            # The worker has no module to look up these names.
            known = typing.get_type_hints(one, include_extras=True)
            one.__annotations__ = {name: known[name] for name in annotations}
