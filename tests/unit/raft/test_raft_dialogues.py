"""The golden dialogues of `tests/golden/raft`: what nodes say and do, step by step.

After a change that is meant, run this file with `OTTLA_REGENERATE=1` in the environment to write them again,
and read the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unit.raft.dialogue import Dialogue

GOLDEN = Path(__file__).parents[2] / "golden" / "raft"


def play(text: str) -> str:
    dialogue = Dialogue()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines += [line, *dialogue.run(line[2:])]
        elif not line or line.startswith("#"):
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda p: p.stem)
def test_dialogue(path: Path) -> None:
    text = path.read_text()
    played = play(text)
    if os.environ.get("OTTLA_REGENERATE"):
        path.write_text(played)
    assert played == text
