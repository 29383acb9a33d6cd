"""The documentation's form: short lines, one title, layers drawn as they are enforced."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from docs.doc_blocks import PAGES, ROOT, blocks

MAX_COLUMNS = 120
ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_are_short(page: Path) -> None:
    long = [
        f"{number}: {line[:60]}"
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if len(line) > MAX_COLUMNS
    ]
    assert long == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_one_title(page: Path) -> None:
    outside = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^# ", outside, re.MULTILINE)) == 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_are_whole(page: Path) -> None:
    outside = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    tables = re.findall(r"(?:^\|.*\n?)+", outside, re.MULTILINE)
    assert [table for table in tables if not re.match(r"\|.*\n\|[-:| ]+\|\n", table)] == []


def test_the_layers_are_drawn_as_they_are_enforced() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    text = ARCHITECTURE.read_text()
    section = text[text.index("## Layers") :]
    (drawn, *_) = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    assert drawn.splitlines() == [layer.replace("ottla.", "") for layer in layers]


def test_the_packages_are_listed() -> None:
    listed = set(re.findall(r"^\| `([a-z_]+)(?:/|\.py)`", ARCHITECTURE.read_text(), re.MULTILINE))
    package = ROOT / "src" / "ottla"
    found = {
        path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert {name for name in found if not name.startswith("_")} - listed == set()


def test_every_file_that_a_page_names_exists() -> None:
    files = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    tails = {tail for file in files for tail in _tails(file)}
    own = {block.title for page in PAGES for block in blocks(page) if block.title}
    missing = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in PAGES
        for name in re.findall(r"`([\w./-]+\.(?:py|jsonl|toml))`", page.read_text())
        if name not in tails and name not in own
    ]
    assert missing == []


def _tails(file: str) -> list[str]:
    parts = file.split("/")
    return ["/".join(parts[at:]) for at in range(len(parts))]


def test_the_glossary_points_at_the_source() -> None:
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text()
    entries = re.findall(r"`(\w+)`\s+in\s+`([\w/.]+)`", text)
    assert len(entries) >= 35
    package = ROOT / "src" / "ottla"
    wrong = [
        f"{name} in {path}"
        for name, path in entries
        if not (package / path).exists()
        or not re.search(rf"^(?:class )?{name}\b", (package / path).read_text(), re.MULTILINE)
    ]
    assert wrong == []
