"""Whether a Python is recognised as optimised, by what its build says of itself."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ottla import interpreter

ROOT = Path(__file__).parents[2]


def build(monkeypatch: pytest.MonkeyPatch, prefix: str, **settings: str) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", settings.get)
    monkeypatch.setattr(sys, "base_prefix", prefix)


def test_a_build_with_optimisations_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    build(monkeypatch, "/opt/python", CONFIG_ARGS="'--enable-optimizations' '--with-lto'")
    assert interpreter.is_optimised()
    build(monkeypatch, "/opt/python", PY_CORE_CFLAGS="-O3 -fprofile-use -fprofile-correction")
    assert interpreter.is_optimised()


def test_the_distributions_own_is_optimised_and_a_plain_build_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    build(monkeypatch, "/usr", CONFIG_ARGS="'--enable-shared'")
    assert interpreter.is_optimised()
    build(monkeypatch, "/opt/versions/3.11.7", CONFIG_ARGS="'--enable-shared'")
    assert not interpreter.is_optimised()
    assert interpreter.description().endswith("built without profile-guided optimisation")


def test_the_set_up_chooses_a_python_that_runs() -> None:
    chosen = subprocess.run(
        ["sh", ROOT / "scripts" / "python.sh"], capture_output=True, text=True, check=True
    )
    version = [chosen.stdout.strip(), "-c", "import sys; print(sys.version_info >= (3, 11))"]
    assert subprocess.run(version, capture_output=True, text=True, check=True).stdout.strip() == "True"
