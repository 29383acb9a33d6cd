"""A simulator that finds nothing proves nothing: brokers broken on purpose are found out, each within a few seeds."""

import subprocess
import sys

import pytest

from ottla.testing.sim.mutations import MUTATIONS

SHORTEST = {
    "acknowledge-early": ("hold,isolate", "p0,p1", 5),
    "skip-truncation": ("isolate,kill", "p0,p1", 6),
    "forget-the-vote": ("kill-voting", "p0", 8),
    "own-high-watermark": ("hold,isolate", "p0,p1,u0", 5),
    "ignore-epochs": ("isolate", "p0,p1", 9),
    "shrink-early": ("hold,isolate", "p0,p1", 6),
    "coordinate-early": ("hold,isolate", "t0,g0,g1,p0", 6),
    "lose-markers": ("kill,stop", "t0,t1,r0", 6),
    "forget-sequences": ("break,slow-network", "p0,p1", 4),
    "read-ahead": ("slow-network", "t0,t1,r0", 4),
    "any-generation": ("hold-client", "t0,x0,x1", 12),
    "keep-aborted-offsets": ("slow-network", "t0,x0,x1", 4),
    "show-unstable-offsets": ("hold-client", "t0,x0,x1", 12),
}
"""The faults, clients and seconds that reveal it soonest; docs/explanation/guarantees.md lists all faults."""


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_broken_broker_is_found_out(mutation):
    faults, clients, seconds = SHORTEST[mutation]
    words = ["--mutation", mutation, "--seeds", "60", "--until-failure", "--jobs", "1"]
    words += ["--faults", faults, "--clients", clients, "--seconds", str(seconds)]
    done = subprocess.run(
        [sys.executable, "-m", "ottla.testing.sim", *words], capture_output=True, text=True, timeout=560
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "VIOLATED" in done.stdout
