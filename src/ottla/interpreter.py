"""How this Python was built: a build without profile-guided optimisation costs a broker 9 to 25 % more CPU a request.

Runs also as a script, with any Python and without a package: exit code 0 for one that `make setup` should prefer.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig

_SYSTEM_PREFIX = "/usr"


def is_optimised() -> bool:
    """Whether it was built with profile-guided optimisation, as far as its settings tell."""
    words = " ".join(str(sysconfig.get_config_var(name)) for name in ("CONFIG_ARGS", "PY_CORE_CFLAGS"))
    if "--enable-optimizations" in words or "-fprofile-use" in words:
        return True
    # Linux distributions build their own with it, and some leave no trace of that in the settings.
    return sys.base_prefix == _SYSTEM_PREFIX


def description() -> str:
    """Version and build, for a report."""
    version = ".".join(map(str, sys.version_info[:3]))
    return version if is_optimised() else f"{version}, built without profile-guided optimisation"


if __name__ == "__main__":
    usable = sys.version_info >= (3, 11) and importlib.util.find_spec("ensurepip") is not None
    sys.exit(0 if usable and is_optimised() else 1)
