"""The tally of long fault runs: builds by their source, pieces that are counted once, and the report."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ottla.testing.tally import Build, Tally, TallyError, build_of, report_of


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a source, a test, and one commit."""
    root = tmp_path / "checkout"
    for name in ("src/part/one.py", "tests/test_one.py"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("1\n")
    git(tmp_path, "init", "--quiet", str(root))
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "first")
    return root


def test_a_build_is_gits_tree_of_the_source(checkout: Path) -> None:
    first = build_of(checkout / "src")
    assert first.tree == git(checkout, "rev-parse", "HEAD:src")
    (checkout / "tests/test_one.py").write_text("2\n")
    assert build_of(checkout / "src") == first, "tests are no part of it"
    (checkout / "src/part/two.py").write_text("2\n")
    changed = build_of(checkout / "src")
    assert changed.tree != first.tree and changed.commit == f"{first.commit}+"
    assert git(checkout, "status", "--short").split() == ["M", "tests/test_one.py", "??", "src/part/two.py"]
    git(checkout, "add", "src")
    git(checkout, "commit", "--quiet", "--message", "second")
    assert build_of(checkout / "src").tree == changed.tree


def test_a_folder_outside_of_a_checkout_has_no_build(tmp_path: Path) -> None:
    with pytest.raises(TallyError, match="needs a Git checkout"):
        build_of(tmp_path)


def test_what_was_added_is_there_for_the_next_run(checkout: Path, tmp_path: Path) -> None:
    source = checkout / "src"
    first = Tally(tmp_path / "kept", build_of(source), source)
    first.add("sim", "1", {"seeds": 1}, cpu_s=1.5)
    first.add("sim", "2", {"seeds": 1}, failures=["lost write: 3"])
    first.add("fuzz", "JKS/1", {"JKS": 500})
    again = Tally(tmp_path / "kept", build_of(source), source)
    assert again.keys("sim") == {"1", "2"}
    assert again.totals("sim") == {"seeds": 2}
    assert [entry.failures for entry in again.entries("sim")] == [(), ("lost write: 3",)]
    (source / "part/one.py").write_text("another build\n")
    assert Tally(tmp_path / "kept", build_of(source), source).keys("sim") == set()


def test_a_run_whose_source_changed_is_not_counted(checkout: Path, tmp_path: Path) -> None:
    source = checkout / "src"
    tally = Tally(tmp_path / "kept", build_of(source), source)
    (source / "part/one.py").touch()
    tally.add("sim", "1", {"seeds": 1})
    (source / "part/one.py").write_text("another build\n")
    with pytest.raises(TallyError, match="src has changed"):
        tally.add("sim", "2", {"seeds": 1})
    assert tally.keys("sim") == {"1"}


def test_a_line_that_was_cut_off_is_passed_over(checkout: Path, tmp_path: Path) -> None:
    source = checkout / "src"
    tally = Tally(tmp_path, build_of(source), source)
    tally.add("sim", "1", {"seeds": 1})
    with tally.path.open("a") as file:
        file.write('{"what": "sim", "key"\n')
    tally.add("sim", "3", {"seeds": 1})
    assert tally.keys("sim") == {"1", "3"}


def test_the_report_adds_up_and_names_what_failed(checkout: Path, tmp_path: Path) -> None:
    source = checkout / "src"
    tally = Tally(tmp_path, Build("0123456789abcdef", "abc"), source)
    tally._check_source = lambda: None  # type: ignore[method-assign]
    for seed in range(1, 4):
        tally.add("sim", str(seed), {"seeds": 1, "records acknowledged": 20}, cpu_s=1.25)
    tally.add("chaos", "run-1", {"kill": 3, "kill-all": 1, "pause": 2, "flap": 1}, seconds=60)
    tally.add("chaos", "run-2", {"kill": 6}, failures=["lost write: send-1/7"], seconds=40)
    tally.add("sim", "3", {"seeds": 1, "records acknowledged": 20}, cpu_s=1.25)
    report = report_of(tally.path)
    assert "| seeds of the simulator | 3 | 10,000 | 0 | 4 s | 0 s |" in report
    assert "| kill -9 of nodes | 10 | 1,000 | 1 |  | 100 s |" in report
    assert "| pauses of nodes | 2 | 500 | 1 |  | 100 s |" in report
    assert "| kill | 9 |" in report
    assert report.endswith("Failed: 1.\n\n- chaos run-2: lost write: send-1/7")
    assert [json.loads(line)["commit"] for line in tally.path.read_text().splitlines()] == ["abc"] * 6
