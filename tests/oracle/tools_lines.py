"""Lines of Kafka's tools and ours, and the flags that Kafka's have: both from files beside the tests."""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_GOLDEN: Final = Path(__file__).parents[1] / "golden" / "tools"
_OWN_NAMES: Final = {"console-producer": "produce", "console-consumer": "consume"}


def lines(section: str) -> list[str]:
    """The lines of a section of `lines.txt`."""
    text = (_GOLDEN / "lines.txt").read_text(encoding="utf-8")
    _, _, after = text.partition(f"[{section}]\n")
    assert after, section
    return after.partition("\n\n")[0].splitlines()


def kafkas_flags() -> dict[str, set[str]]:
    """What each of Kafka's tools takes, its subcommands included, by our name of the tool."""
    found: dict[str, set[str]] = {}
    for text in (_GOLDEN / "flags.jsonl").read_text(encoding="utf-8").splitlines():
        tool = json.loads(text)
        name = tool["tool"].removeprefix("kafka-")
        flags = {*tool["flags"], *(flag for each in tool.get("subcommands", {}).values() for flag in each)}
        found[_OWN_NAMES.get(name, name)] = flags
    return found


def used_flags() -> dict[str, set[str]]:
    """The flags of each tool in the lines that are compared: those of the files, and those in tests of this folder."""
    used: dict[str, set[str]] = defaultdict(set)
    for line in _compared_lines():
        words = line.lstrip("!? ").split()
        if words:
            used[words[0]] |= {word.partition("=")[0] for word in words if word.startswith("--")}
    return used


def _compared_lines() -> Iterator[str]:
    yield from (_GOLDEN / "lines.txt").read_text(encoding="utf-8").splitlines()
    for file in Path(__file__).parent.glob("test_tools_*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
                yield "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from node.value.splitlines()


__all__ = ["kafkas_flags", "lines", "used_flags"]
