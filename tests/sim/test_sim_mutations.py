"""A simulator that finds nothing proves nothing: brokers broken on purpose are found out, each within a few seeds."""

import subprocess
import sys

import pytest

from ottla.testing.sim.mutations import MUTATIONS

FIRST_SEED = {
    "acknowledge-early": 1,
    "skip-truncation": 1,
    "forget-the-vote": 7,
    "own-high-watermark": 8,
    "ignore-epochs": 16,
}
"""Where to begin, so that the test is short. Each is found within 20 seeds from the first one on, too."""


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_broken_broker_is_found_out(mutation):
    seed = str(FIRST_SEED.get(mutation, 1))
    words = ["--mutation", mutation, "--seed", seed, "--seeds", "40", "--until-failure", "--jobs", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "ottla.testing.sim", *words], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "VIOLATED" in done.stdout
