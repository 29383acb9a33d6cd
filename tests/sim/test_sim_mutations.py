"""A simulator that finds nothing proves nothing: brokers broken on purpose are found out, each within a few seeds."""

import subprocess
import sys

import pytest

from ottla.testing.sim.mutations import MUTATIONS

SHORTER = {
    "acknowledge-early": "isolate",
    "skip-truncation": "isolate",
    "forget-the-vote": "kill-voting",
    "own-high-watermark": "isolate",
    "ignore-epochs": "isolate",
    "shrink-early": "isolate",
}
"""The faults that bring it to light soonest. With all kinds of faults it takes some seeds more."""


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_broken_broker_is_found_out(mutation):
    words = ["--mutation", mutation, "--seed", "1", "--seeds", "40", "--until-failure", "--jobs", "1"]
    if mutation in SHORTER:
        words += ["--faults", SHORTER[mutation]]
    done = subprocess.run(
        [sys.executable, "-m", "ottla.testing.sim", *words], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "VIOLATED" in done.stdout
