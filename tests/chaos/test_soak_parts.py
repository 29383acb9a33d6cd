"""The parts of soaks and of faults of machines that need no cluster: charts, growth, damaged files, limits."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ottla.testing.chaos import machine
from ottla.testing.soak.samples import Sampler, chart, growth
from unit.log.log_rig import batch


def test_growth_compares_the_end_with_the_time_after_the_start() -> None:
    flat = [50.0, 90.0] + [100.0] * 30
    assert growth(flat) == 0
    assert growth([*flat[:16], *(130.0 for _ in range(16))]) == pytest.approx(0.3)
    assert growth([1.0, 100.0]) == 0, "too few to tell"


def test_a_chart_has_a_line_and_a_name_for_each_process() -> None:
    drawn = ElementTree.fromstring(
        chart("Memory", {"node 1": [(0, 40), (60, 50)], "registry": [(0, 30)]}, "MB")
    )
    names = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}polyline"))) == 2
    assert {"Memory", "node 1", "registry", "1.0 min", "50 MB"} <= set(names)


def test_a_sampler_reads_this_process_and_passes_over_one_that_is_gone() -> None:
    asked = threading.Event()

    def pids() -> dict[str, int]:
        asked.set()
        return {"here": os.getpid(), "gone": 2**22 + 1}

    sampler = Sampler(pids, 0.01)
    sampler.start()
    assert asked.wait(60)
    sampler.stop()
    assert {sample.name for sample in sampler.samples} == {"here"}
    assert sampler.samples[0].resident_mb > 1 and sampler.samples[0].descriptors > 2


def test_a_damaged_file_is_repaired_unless_it_was_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    (tmp_path / "__cluster_metadata-0").mkdir()
    (tmp_path / "__cluster_metadata-0" / "00000000000000000000.log").write_bytes(batch("left alone"))
    folder.mkdir()
    log = folder / "00000000000000000000.log"
    whole = batch("a", "b") + batch("c", base_offset=2)
    log.write_bytes(whole)
    for seed in range(20):
        damage = machine.damage(tmp_path, random.Random(seed))
        assert damage is not None and damage.path == log
        changed = [
            at for at, (old, new) in enumerate(zip(whole, log.read_bytes(), strict=True)) if old != new
        ]
        assert changed == [damage.at]
        machine.repair(damage)
        assert log.read_bytes() == whole
    damage = machine.damage(tmp_path, random.Random(1))
    assert damage is not None
    log.write_bytes(whole)
    machine.repair(damage)
    assert log.read_bytes() == whole


def test_a_process_without_descriptors_cannot_open_a_file() -> None:
    code = "import sys; print('ready', flush=True); sys.stdin.readline(); open('/dev/null')"
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe)
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    before = machine.limit_descriptors(child.pid)
    _, error = child.communicate(b"go\n", timeout=60)
    assert before[0] > 10
    assert child.returncode == 1 and b"Too many open files" in error
