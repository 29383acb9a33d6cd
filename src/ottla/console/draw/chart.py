"""Charts over time as SVG: a scale, up to six lines that differ by colour and dash, and the same as a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from markupsafe import Markup

from ottla.console.draw.spark import path, thin
from ottla.console.sampler.why import span

_WIDTH, _HEIGHT = 560, 150
_POINTS: Final = 140
_ROWS: Final = 10
_DAY_S: Final = 86_400.0
_LEAST_POINTS: Final = 2
MAX_SERIES: Final = 6


def nice_top(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= value)


def time_chart(
    series: Sequence[tuple[str, Sequence[float]]],
    title: str,
    show: Callable[[float], str],
    step_s: float = 2.0,
) -> Markup:
    """Lines over the last minutes; the newest value is at the right edge."""
    shown = [(name, list(values)) for name, values in series[:MAX_SERIES]]
    longest = max((len(values) for _, values in shown), default=0)
    top = nice_top(max((max(values, default=0.0) for _, values in shown), default=0.0))
    lines = Markup("")
    for index, (name, values) in enumerate(shown):
        padded = [0.0] * (longest - len(values)) + values
        lines += Markup('<path class="line s{}" d="{}"><title>{}</title></path>').format(
            index, path(thin(padded, _POINTS), _WIDTH, _HEIGHT, top), name
        )
    grid = Markup("").join(
        Markup('<line class="grid" x1="0" x2="{}" y1="{:.0f}" y2="{:.0f}"/>').format(_WIDTH, y, y)
        for y in (1, _HEIGHT / 2, _HEIGHT - 1)
    )
    legend = Markup("").join(
        Markup(
            '<li><svg class="key" viewBox="0 0 18 6" aria-hidden="true"><path class="line s{}" d="M0 3H18"/></svg>'
            "{}</li>"
        ).format(index, name)
        for index, (name, _) in enumerate(shown)
    )
    if longest < _LEAST_POINTS:
        return _too_early(title, _summary(shown, show), step_s)
    span_s = (longest - 1) * step_s
    from_text = f"{span_s:.0f} s ago" if span_s < 90 else f"{span(span_s)} ago"
    return Markup(
        '<figure class="chart"><figcaption>{title}</figcaption><div class="plot">'
        '<svg viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img" aria-label="{title}: {summary}">'
        "{grid}{lines}</svg>"
        '<span class="top">{top}</span><span class="half">{half}</span></div>'
        '<div class="ends"><span>{start}</span><span>now</span></div>'
        '<ul class="legend">{legend}</ul>{table}</figure>'
    ).format(
        title=title,
        w=_WIDTH,
        h=_HEIGHT,
        summary=_summary(shown, show),
        grid=grid,
        lines=lines,
        top=show(top),
        half=show(top / 2),
        start=from_text,
        legend=legend,
        table=_table(shown, title, show, longest, step_s),
    )


def _too_early(title: str, summary: str, step_s: float) -> Markup:
    return Markup(
        '<figure class="chart" aria-label="{title}: {summary}"><figcaption>{title}</figcaption>'
        '<p class="dim">{summary}; nothing to draw yet: a point is added every {step}.</p></figure>'
    ).format(title=title, summary=summary, step=f"{step_s:.0f}\u00a0s" if step_s < 60 else span(step_s))


def _summary(series: Sequence[tuple[str, Sequence[float]]], show: Callable[[float], str]) -> str:
    return "; ".join(f"{name} {show(values[-1])} now" for name, values in series if values) or "no values yet"


def _table(
    series: Sequence[tuple[str, Sequence[float]]],
    title: str,
    show: Callable[[float], str],
    longest: int,
    step_s: float,
) -> Markup:
    """The numbers behind the chart, for everyone who cannot see it or wants them."""
    if not longest:
        return Markup("")
    every = max(longest // _ROWS, 1)
    now = time.time()
    form = "%H:%M:%S" if longest * step_s <= _DAY_S else "%Y-%m-%d %H:%M"
    rows = Markup("")
    for back in range(0, longest, every):
        moment = time.strftime(form, time.gmtime(now - back * step_s))
        cells = Markup("").join(
            Markup("<td>{}</td>").format(show(values[-1 - back]) if back < len(values) else "\u2013")
            for _, values in series
        )
        rows += Markup("<tr><th scope=row>{}</th>{}</tr>").format(moment, cells)
    heads = Markup("").join(Markup("<th scope=col>{}</th>").format(name) for name, _ in series)
    return Markup(
        '<details><summary>Table</summary><div class=scroll tabindex=0 role=region aria-label="{}, as a table">'
        "<table><thead><tr><th scope=col>UTC</th>{}</tr></thead><tbody>{}</tbody></table></div></details>"
    ).format(title, heads, rows)
