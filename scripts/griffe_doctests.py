"""Shows the examples of docstrings as code: griffe hands `>>>` lines on as text, which Markdown takes for quotes."""

from __future__ import annotations

from typing import Any

from griffe import Extension, Object


def fence_examples(text: str) -> str:
    """Put each run of lines from a `>>>` to the next empty line into a block of its own."""
    lines: list[str] = []
    inside = fenced = False
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("```"):
            fenced = not fenced
        if not fenced and not inside and stripped.startswith(">>>"):
            lines += ["", f"{_indent(line)}```pycon"]
            inside = True
        elif inside and not stripped:
            lines.append("```" if not lines else f"{_indent(lines[-1])}```")
            inside = False
        lines.append(line)
    if inside:
        lines.append(f"{_indent(lines[-1])}```")
    return "\n".join(lines)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


class FenceExamples(Extension):
    """Changes the docstring of every object that is loaded."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = fence_examples(obj.docstring.value)
