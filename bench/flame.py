"""Draws a profile as a flame graph: `py-spy record -f raw -F -o FILE`, then `python -m bench.flame FILE SVG`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

_WIDTH = 1200
_STEP = 17
_CHARACTER = 6.2
_NARROWEST = 0.8
_STYLE = """<style>
text { font: 11px ui-monospace, monospace; fill: #1f2328 }
rect { stroke: #ffffff; stroke-width: 0.5 }
@media (prefers-color-scheme: dark) { .title { fill: #f0f6fc } rect { stroke: #0d1117 } }
</style>"""
_COLOURS = {"net": "#8cc4f0", "api": "#f2c57c", "replica": "#f0a58c", "log": "#a8d8a0", "wire": "#d3b4ec"}
_OTHER = "#d1d9e0"


@dataclass(slots=True)
class Frame:
    samples: int = 0
    inner: dict[str, Frame] = field(default_factory=dict)


def read(raw: str, below: str) -> Frame:
    """A tree of calls, built from lines of `outer;inner;innermost count`."""
    root = Frame()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        names = stack.split(";")
        at = next((n for n, name in enumerate(names) if name.startswith(below)), None)
        if at is None:
            continue
        frame = root
        frame.samples += int(count)
        for name in names[at + 1 :]:
            frame = frame.inner.setdefault(name, Frame())
            frame.samples += int(count)
    return root


def draw(root: Frame, title: str) -> str:
    parts: list[str] = []
    depth = _draw(root, 0.0, 0, _WIDTH / max(root.samples, 1), parts)
    height = depth * _STEP + 40
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">\n{_STYLE}\n'
        f'<text class="title" x="4" y="18">{escape(title)} ({root.samples} samples)</text>\n{body}\n</svg>\n'
    )


def _draw(frame: Frame, x: float, depth: int, scale: float, parts: list[str]) -> int:
    """Draw the calls of a frame one row below it. Returns the deepest row."""
    deepest = depth
    for name, inner in sorted(frame.inner.items(), key=lambda item: -item[1].samples):
        width = inner.samples * scale
        if width < _NARROWEST:
            continue
        y = 28 + depth * _STEP
        label = escape(name[: max(int(width / _CHARACTER) - 1, 0)])
        parts.append(
            f'<g><title>{escape(name)}: {inner.samples}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" '
            f'height="{_STEP - 1}" fill="{_colour(name)}"/><text x="{x + 3:.1f}" y="{y + 12}">{label}</text></g>'
        )
        deepest = max(deepest, _draw(inner, x, depth + 1, scale, parts))
        x += width
    return max(deepest, depth + bool(frame.inner))


def _colour(name: str) -> str:
    layer = name.partition("ottla/")[2].partition("/")[0]
    if "coder of " in name:
        layer = "wire"
    return _COLOURS.get("log" if layer == "records" else layer, _OTHER)


if __name__ == "__main__":
    # The frames above the loop's run are the same for all calls.
    tree = read(Path(sys.argv[1]).read_text(), below="Runner.run (asyncio/runners.py")
    Path(sys.argv[2]).write_text(draw(tree, Path(sys.argv[1]).stem))
