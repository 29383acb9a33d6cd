"""The parts of soaks and of faults of machines that need no cluster: charts, growth, damaged files, limits."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ottla.testing.chaos import machine, preload
from ottla.testing.chaos.broken_disk import BrokenDisk
from ottla.testing.chaos.wrong_clock import WrongClock
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


NEEDS_A_COMPILER = pytest.mark.skipif(not preload.usable(), reason="needs Linux and a C compiler")


@NEEDS_A_COMPILER
def test_a_wrong_clock_shows_another_time_of_day_and_leaves_time_outs_alone(tmp_path: Path) -> None:
    clock = WrongClock(tmp_path, "node-1")
    code = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"
    command = [*preload.launcher([clock.preload]), sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as child:
        assert child.stdin is not None and child.stdout is not None
        for ahead_ms in (0, 3_600_000, -7_200_500, 0):
            clock.set(ahead_ms)
            before, before_monotonic = time.time(), time.monotonic()
            child.stdin.write("\n")
            now, monotonic = map(float, child.stdout.readline().split())
            assert before <= now - ahead_ms / 1000 + 0.001 and now - ahead_ms / 1000 <= time.time() + 0.001
            assert before_monotonic <= monotonic <= time.monotonic()
        child.stdin.close()


@NEEDS_A_COMPILER
def test_a_disk_fails_or_is_slow_only_in_its_directory(tmp_path: Path) -> None:
    disk = BrokenDisk(tmp_path / "library", tmp_path / "data")
    (tmp_path / "data").mkdir()
    code = (
        "import os, sys\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        file = os.open(path, os.O_CREAT | os.O_WRONLY)\n"
        "        os.write(file, b'x'), os.fsync(file)\n"
        "        print('written')\n"
        "    except OSError as error:\n"
        "        print(error.strerror)\n"
    )
    command = [*preload.launcher([disk.preload]), sys.executable, "-c", code]
    command += [str(tmp_path / "data" / "a"), str(tmp_path / "b")]

    def write() -> list[str]:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split(
            "\n"
        )

    assert write()[:2] == ["written", "written"]
    disk.fail("syncs")
    assert write()[:2] == ["Input/output error", "written"]
    disk.slow("syncs and writes")
    began = time.monotonic()
    assert write()[:2] == ["written", "written"]
    assert time.monotonic() - began >= 1
    disk.mend()
    assert write()[:2] == ["written", "written"]
