"""The list of mutations follows the source: every text is found, and what replaces it is Python. `make mutations` runs
them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mutations.catalog import ROOT, Mutation, TextNotFound, load
from mutations.run import Copy, Result, Verdict, go_on
from ottla.testing.tally import Build, Tally

MUTATIONS = load()


def test_there_are_enough_mutations_with_names_of_their_own() -> None:
    assert len(MUTATIONS) >= 40
    assert len({each.name for each in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_text_is_still_in_the_source_and_so_are_the_tests(mutation: Mutation) -> None:
    broken = mutation.apply((ROOT / mutation.path).read_text())
    ast.parse(broken)
    for test in mutation.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).exists()
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()


def test_a_text_that_is_gone_is_an_error() -> None:
    with pytest.raises(TextNotFound, match="stands 0 times"):
        MUTATIONS[0].apply("nothing of it")


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """A tree with one function and its tests."""
    root = tmp_path / "tree"
    (root / "src/ottla/testing").mkdir(parents=True)
    (root / "tests").mkdir()
    # pytest loads the installed plugin of this name.
    for name in ("__init__.py", "testing/__init__.py", "testing/pytest_plugin.py"):
        (root / "src/ottla" / name).write_text("")
    (root / "src/ottla/sums.py").write_text("def add(a, b):\n    return a + b\n")
    (root / "tests/test_weak.py").write_text(
        "from ottla.sums import add\ndef test_0(): assert add(0, 0) == 0\n"
    )
    (root / "tests/test_good.py").write_text(
        "from ottla.sums import add\ndef test_1(): assert add(1, 1) == 2\n"
    )
    (tmp_path / "copy").mkdir()
    return Copy(tmp_path / "copy", root)


@pytest.mark.parametrize(
    ("new", "tests", "verdict"),
    [
        ("a - b", "tests/test_good.py", Verdict.CAUGHT),
        ("a - b", "tests/test_weak.py", Verdict.SURVIVED),
        ("a -", "tests/test_good.py", Verdict.BROKEN),
    ],
)
def test_a_mutation_is_caught_by_a_failing_test_only(
    copy: Copy, new: str, tests: str, verdict: Verdict
) -> None:
    result = copy.attempt(Mutation("m", "sums", "sums.py", "a + b", new, (tests,)))
    assert result.verdict is verdict, result.detail
    assert copy.test(["tests/test_good.py"])[0] == 0, "the source is mended again"


def test_what_was_caught_is_not_tried_again_until_the_tests_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").mkdir()
    tally = Tally(tmp_path, Build("0123456789abcdef", "abc"), tmp_path / "source")
    tried: list[str] = []

    def attempts(mutations: Sequence[Mutation], jobs: int, ended: Callable[[Result], None]) -> list[Result]:
        for one in mutations:
            tried.append(one.name)
            ended(Result(one, Verdict.SURVIVED if one is MUTATIONS[1] else Verdict.CAUGHT, 1.0, ""))
        return []

    monkeypatch.setattr("mutations.run.check", attempts)
    go_on(MUTATIONS[:2], 1, tally, "tests1")
    go_on(MUTATIONS[:3], 1, tally, "tests1")
    first, second, third = (each.name for each in MUTATIONS[:3])
    assert tried == [first, second, second, third]
    assert tally.totals("mutations") == {"caught": 2}
    tried.clear()
    go_on(MUTATIONS[:3], 1, tally, "tests2")
    assert tried == [first, second, third]
