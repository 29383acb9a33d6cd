"""Every shell and Python block of README and of the documentation works, and prints what the page shows."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from docs.doc_blocks import PAGES, ROOT, RUNNABLE, SHOWN, Block, all_fences, blocks, needs
from docs.doc_page import PageRun, matches
from integration.servers import running_postgres
from oracle.kafka_tools import needs_java

MAX_NOT_RUN = 16


def _runs(block: Block) -> bool:
    return block.language in RUNNABLE and block.how != "no"


def _pages() -> list[object]:
    marks = {
        "kafka": (needs_java, pytest.mark.slow, pytest.mark.java),
        "spark": (pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(1800)),
        "slow": (pytest.mark.slow,),
    }
    return [
        pytest.param(
            page,
            id=str(page.relative_to(ROOT)),
            marks=[mark for need in sorted(needs(page)) for mark in marks.get(need, ())],
        )
        for page in PAGES
        if any(map(_runs, blocks(page)))
    ]


@pytest.mark.parametrize("page", _pages())
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    if "spark" in needs(page):
        pytest.importorskip("pyspark", reason="the pipeline needs Spark: make setup-spark")
    with contextlib.ExitStack() as stack:
        postgres = stack.enter_context(running_postgres()) if "postgres" in needs(page) else None
        run = stack.enter_context(PageRun(tmp_path, postgres.port if postgres is not None else None))
        if "broker" in needs(page):
            run.start_broker()
        if "kafka" in needs(page):
            run.start_kafka()
        for block in blocks(page):
            if block.title is not None or _runs(block):
                run.run(block)


def test_every_block_is_run_or_says_why_not() -> None:
    every = [block for page in PAGES for block in blocks(page)]
    assert [block.where for block in every if block.language not in RUNNABLE + SHOWN] == []
    left_out = [block for block in every if block.how == "no"]
    assert [block.where for block in left_out if len(block.reason) < 10] == []
    assert len(left_out) <= MAX_NOT_RUN, [block.where for block in left_out]


def test_no_block_is_overlooked() -> None:
    for page in PAGES:
        shown = sum(1 + (block.output is not None) for block in blocks(page) if block.language)
        assert shown == all_fences(page), page


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a ... c", "a b c\n", True),
        ("ready (cluster gLFecZcXQEWBTVXHQ0N7QA)", "ready (cluster AAAAAAAAAAAAAAAAAAAAAA)", True),
        ("1 passed in 0.51s", "1 passed in 2.03s", True),
        ("a\n...", "a\n", True),
        ("a\n...", "a\nb\nc\n", True),
        ("a\n...", "ab\n", False),
        ("greetings 0 0", "greetings 0 1", False),
    ],
)
def test_output_is_compared_but_for_what_varies(expected: str, printed: str, same: bool) -> None:
    assert matches(expected, printed) == same
