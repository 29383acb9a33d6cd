"""Templates: the environment, the words for numbers, sizes and times, and blocks of a page on their own."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ottla.console.draw import chart, spark
from ottla.console.sampler.why import span
from ottla.console.web import Values

FOLDER: Final = Path(__file__).parent
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_NOTHING: Final = "\u2013"


def num(value: float | None) -> str:
    """A whole number with thousands; a dash for what is unknown."""
    return _NOTHING if value is None or value < 0 else f"{value:,.0f}"


def counted(value: float, word: str) -> str:
    """A number with its word in the right form: 1 group, 1,200 groups."""
    return f"{num(value)} {word}" if value == 1 else f"{num(value)} {word}s"


def short(value: float | None) -> str:
    """A number in three or four signs: 41.2 k, 1.24 M."""
    if value is None:
        return _NOTHING
    if value < 10 and value != int(value):
        return f"{value:.1f}"
    if value < 10_000:
        return f"{value:,.0f}"
    for limit, unit in ((1e6, "k"), (1e9, "M"), (1e12, "G")):
        if value < limit:
            return f"{value / (limit / 1000):.3g} {unit}"
    return f"{value / 1e12:.3g} T"


def size(value: float | None) -> str:
    """Bytes in the unit that leaves three digits."""
    if value is None or value < 0:
        return _NOTHING
    count, unit = float(value), 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def duration(seconds: float | None) -> str:
    """A length of time; below ten seconds with a decimal."""
    if seconds is None:
        return _NOTHING
    return f"{seconds:.1f} s" if 0 < seconds < 10 else span(seconds)


def keep(milliseconds: str | int | None) -> str:
    """A retention time in words."""
    if milliseconds in (None, "") or int(milliseconds or 0) < 0:
        return "for ever"
    return span(int(milliseconds or 0) / 1000)


def when(milliseconds: float | None, seconds: bool = True) -> Markup:
    """A moment: UTC in the text, which the browser turns into local time; the machine form on hover."""
    if milliseconds is None or milliseconds < 0:
        return Markup(_NOTHING)
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    text = moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] if seconds else moment.strftime("%Y-%m-%d %H:%M")
    iso = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(iso, text, text)


def ago(moment_s: float | None) -> str:
    """How long ago, for a moment of the wall clock in seconds."""
    return _NOTHING if not moment_s else f"{span(time.time() - moment_s)} ago"


def visible(text: str) -> Markup:
    """Text of strangers: characters that cannot be seen or that turn the direction of writing become marks."""
    parts = []
    for sign in text:
        if sign.isprintable() or sign in "\n\t":
            parts.append(str(escape(sign)))
        else:
            parts.append(f'<span class="ctl" title="U+{ord(sign):04X}">·</span>')
    return Markup("".join(parts))


def coded(text: str) -> Markup:
    """A sentence of ours: what stands between backticks is shown as code."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else part for index, part in enumerate(parts)
    )


def dotted(name: str) -> Markup:
    """The key of a setting, which may be broken behind its dots."""
    return Markup(".<wbr>").join(name.split("."))


def limit(value: str) -> str:
    """A number of a setting in words, where the largest one stands for no limit."""
    return "no limit" if value == str(2**63 - 1) else ""


def environment() -> Environment:
    """Jinja with our filters; the macros of `ui.html` are there as `ui` in every template and block."""
    env = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        num=num,
        counted=counted,
        short=short,
        size=size,
        duration=duration,
        keep=keep,
        when=when,
        ago=ago,
        visible=visible,
        coded=coded,
        limit=limit,
        dotted=dotted,
        span=span,
    )
    env.globals.update(
        sparkline=spark.sparkline, meter=spark.meter, time_chart=chart.time_chart, now=time.time
    )
    env.globals["ui"] = env.get_template("ui.html").module
    return env


class Templates:
    """Whole pages, and blocks of them."""

    def __init__(self) -> None:
        self._env = environment()

    def page(self, template: str, values: Values) -> str:
        return self._env.get_template(template).render(values)

    def blocks(self, template: str, names: tuple[str, ...], values: Values) -> dict[str, str]:
        """The named blocks of a template, each as it stands in the page."""
        found = self._env.get_template(template)
        context = found.new_context(values)
        return {name: "".join(found.blocks[name](context)) for name in names if name in found.blocks}
