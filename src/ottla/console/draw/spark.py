"""Sparklines and meters as small SVG pictures."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

_WIDTH, _HEIGHT, _POINTS = 84, 20, 30


def thin(values: Sequence[float], count: int) -> list[float]:
    """At most `count` values: each the mean of its neighbours."""
    if len(values) <= count:
        return list(values)
    step = len(values) / count
    found = []
    for index in range(count):
        part = values[int(index * step) : max(int((index + 1) * step), int(index * step) + 1)]
        found.append(sum(part) / len(part))
    return found


def path(values: Sequence[float], width: float, height: float, top: float | None = None) -> str:
    """A line from left to right through the values."""
    if not values:
        return ""
    high = max(top if top is not None else max(values), 1e-9)
    step = width / max(len(values) - 1, 1)
    points = (
        f"{index * step:.1f} {height - 1 - min(value / high, 1) * (height - 2):.1f}"
        for index, value in enumerate(values)
    )
    return "M" + "L".join(points)


def sparkline(values: Sequence[float], label: str = "") -> Markup:
    """A line without axes; nothing is drawn while there are fewer than two values."""
    thinned = thin(values, _POINTS)
    line = path(thinned, _WIDTH, _HEIGHT) if len(thinned) > 1 else f"M0 {_HEIGHT - 1}L{_WIDTH} {_HEIGHT - 1}"
    # A hundred of them stand on a page: the only text of strangers is the label.
    said = escape(label or "the last ten minutes")
    return Markup(
        f'<svg class="spark" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{said}"><path d="{line}"/></svg>'
    )


def meter(share: float, label: str, tone: str = "") -> Markup:
    """A bar that is filled to a share of 0 to 1."""
    filled = min(max(share, 0.0), 1.0) * 100
    return Markup(
        '<svg class="meter {}" role="img" aria-label="{}"><rect class="rest" width="100%" height="100%" rx="3"/>'
        '<rect class="full" width="{:.1f}%" height="100%" rx="3"/></svg>'
    ).format(tone, label, filled)
