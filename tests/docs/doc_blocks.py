"""Finds the code blocks of README and of the documentation, and what is to be done with each.

A comment in front of a block changes how it is run:

    <!-- run: no; REASON -->        it is not run, for this reason
    <!-- run: background -->        it is left running until the page ends
    <!-- run: fails -->             it ends with another exit code than 0

`<!-- page: broker -->` gives a page a broker on localhost:9092, `kafka` one of Apache Kafka, `postgres` a PostgreSQL on
port 5432; `spark` says that it needs Spark, `slow` that it takes more than a second or two. A block with a title
(```` ```python title="app.py" ````) is a file that the page saves. An `output` block is what the block before it
prints; `...` stands for anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[a-z]*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_RUN = re.compile(r"<!-- run: (?P<how>[a-z]+)(?:; (?P<reason>[^>]+))? -->\s*$")
_PAGE = re.compile(r"^<!-- page: (?P<need>[a-z ]+) -->$", re.MULTILINE)
_ANY_FENCE = re.compile(r"^ *```\S+.*$", re.MULTILINE)

RUNNABLE = ("sh", "python")
SHOWN = ("text", "properties", "output", "toml", "yaml", "xml", "ini")
"""What is shown only: drawings, and files of other programs."""


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    title: str | None
    how: str
    reason: str
    output: str | None = None

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def needs(page: Path) -> set[str]:
    """What the page says of itself: `broker`, `kafka`, `postgres`, `spark`, `slow`."""
    return {word for mark in _PAGE.finditer(page.read_text()) for word in mark["need"].split()}


def all_fences(page: Path) -> int:
    """How many blocks with a language there are, whatever they look like."""
    return len(_ANY_FENCE.findall(page.read_text()))


def blocks(page: Path) -> list[Block]:
    """The page's blocks in order; an output belongs to the block before it."""
    found: list[Block] = []
    for block in _every_block(page):
        if block.language == "output":
            assert found, f"{block.where}: an output without a block before it"
            assert found[-1].output is None, f"{block.where}: a second output"
            found[-1] = replace(found[-1], output=block.text)
        else:
            found.append(block)
    return found


def _every_block(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for match in _FENCE.finditer(text):
        before = _RUN.search(text[: match.start()])
        indent = match["indent"]
        lines = match["text"].splitlines(keepends=True)
        yield Block(
            page=page,
            line=text.count("\n", 0, match.start()) + 1,
            language=match["language"],
            text="".join(line.removeprefix(indent) for line in lines),
            title=match["title"],
            how=before["how"] if before else "",
            reason=(before["reason"] or "") if before else "",
        )
