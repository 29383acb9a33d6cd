"""Whole clusters in one process: some seeds hold every promise (`make sim` runs many), and each is the same again."""

import re
import subprocess
import sys

import pytest


def simulate(*words):
    """The simulator as a developer starts it; its order of sets has to be the seed's, so it is a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "ottla.testing.sim", *words], capture_output=True, text=True, timeout=560
    )


@pytest.mark.slow
def test_clusters_keep_their_promises_under_all_faults():
    done = simulate("--seed", "1", "--seeds", "6", "--jobs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 seeds" in done.stdout and "0 failed" in done.stdout


@pytest.mark.slow
def test_the_same_seed_is_the_same_run():
    first, second, other = (simulate("--seed", seed, "--seconds", "6") for seed in ("4", "4", "5"))
    trace = re.compile(r"trace [0-9a-f]{8}, \d+ steps")
    assert first.returncode == 0, first.stdout + first.stderr
    assert trace.search(first.stdout).group() == trace.search(second.stdout).group()
    assert trace.search(first.stdout).group() != trace.search(other.stdout).group()
    assert first.stdout == second.stdout
