"""A topology as SVG: boxes in rows below what feeds them, rates on the arrows of topics, lag on the sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from ottla.json_types import Json, JsonList

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 268, 44, 28, 46, 12
_MOST_BOXES: Final = 300
_CHARS: Final = 30
_KINDS: Final = ("topic", "store", "plain")


@dataclass(frozen=True, slots=True)
class Box:
    """A topic or an operator."""

    name: str
    label: str
    kind: str


def parse(document: Mapping[str, Json]) -> tuple[list[Box], list[tuple[str, str]]]:
    """Boxes and arrows of an application's document; what does not fit is left out."""
    boxes: dict[str, Box] = {}
    for each in _list(document.get("boxes"))[:_MOST_BOXES]:
        if isinstance(each, dict) and isinstance(each.get("name"), str):
            kind = each.get("kind") if each.get("kind") in _KINDS else "plain"
            boxes[each["name"]] = Box(each["name"], str(each.get("label", each["name"])), str(kind))
    arrows = [
        (each[0], each[1])
        for each in _list(document.get("arrows"))[: 4 * _MOST_BOXES]
        if isinstance(each, list) and len(each) == 2 and each[0] in boxes and each[1] in boxes
    ]
    return list(boxes.values()), arrows


def _list(value: object) -> JsonList:
    return value if isinstance(value, list) else []


def _depths(boxes: Sequence[Box], arrows: Sequence[tuple[str, str]]) -> dict[str, int]:
    """How far down a box stands: below everything that feeds it. A circle ends at the number of boxes."""
    depth = {box.name: 0 for box in boxes}
    for _ in boxes:
        moved = False
        for one, other in arrows:
            if depth[other] < depth[one] + 1 < len(boxes):
                depth[other] = depth[one] + 1
                moved = True
        if not moved:
            break
    return depth


def topology(
    document: Mapping[str, Json],
    notes: Mapping[str, str],
    rates: Mapping[str, str],
    urls: Mapping[str, str],
) -> Markup:
    """The picture. `notes` stand below a topic's name, `rates` on its arrows; `urls` lead to pages of topics."""
    boxes, arrows = parse(document)
    if not boxes:
        return Markup("")
    rows: dict[int, list[Box]] = {}
    depth = _depths(boxes, arrows)
    for box in boxes:
        rows.setdefault(depth[box.name], []).append(box)
    order = {number: index for index, number in enumerate(sorted(rows))}
    widest = max(map(len, rows.values()))
    width = 2 * _MARGIN + widest * (_WIDTH + _GAP_X) - _GAP_X
    height = 2 * _MARGIN + len(rows) * (_HEIGHT + _GAP_Y) - _GAP_Y
    places: dict[str, tuple[float, float]] = {}
    for number, members in rows.items():
        indent = (widest - len(members)) * (_WIDTH + _GAP_X) / 2
        for column, box in enumerate(members):
            x = _MARGIN + indent + column * (_WIDTH + _GAP_X)
            places[box.name] = x, _MARGIN + order[number] * (_HEIGHT + _GAP_Y)
    labels = {box.name: box.label for box in boxes if box.kind == "topic"}
    drawn = Markup("").join(
        _arrow(places[one], places[two], _rate(one, two, labels, rates)) for one, two in arrows
    )
    drawn += Markup("").join(_box(box, places[box.name], notes, urls) for box in boxes)
    summary = f"{len(boxes)} boxes: " + ", ".join(box.label for box in boxes[:12])
    return Markup(
        '<svg class="topology" viewBox="0 0 {w:.0f} {h:.0f}" width="{w:.0f}" height="{h:.0f}" role="group"'
        ' aria-label="Topology, {s}"><defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>{d}</svg>'
    ).format(w=width, h=height, s=summary[:400], d=drawn)


def _rate(one: str, other: str, labels: Mapping[str, str], rates: Mapping[str, str]) -> str:
    topic = labels.get(one) or labels.get(other) or ""
    return rates.get(topic, "")


def _arrow(one: tuple[float, float], other: tuple[float, float], rate: str) -> Markup:
    x1, y1 = one[0] + _WIDTH / 2, one[1] + _HEIGHT
    x2, y2 = other[0] + _WIDTH / 2, other[1]
    middle = (y1 + y2) / 2
    line = Markup(
        '<path class="arrow" d="M{:.0f} {:.0f} C{:.0f} {:.0f} {:.0f} {:.0f} {:.0f} {:.0f}" marker-end="url(#tip)"/>'
    ).format(x1, y1, x1, middle, x2, middle, x2, y2)
    if rate:
        line += Markup('<text class="rate" x="{:.0f}" y="{:.0f}">{}</text>').format(
            (x1 + x2) / 2 + 8, middle + 4, rate
        )
    return line


def _fitting(text: str) -> str:
    return text if len(text) <= _CHARS else text[: _CHARS - 1] + "\u2026"


def _box(box: Box, place: tuple[float, float], notes: Mapping[str, str], urls: Mapping[str, str]) -> Markup:
    x, y = place
    note = notes.get(box.label, "") if box.kind == "topic" else ""
    label = box.label
    if not note and len(label) > _CHARS:
        # An operator with its stores: these stand below it.
        label, _, note = label.partition(" ")
    label, note = _fitting(label), _fitting(note)
    drawn = Markup(
        '<title>{}</title><rect class="{}" x="{:.0f}" y="{:.0f}" width="{}" height="{}" rx="{}"/>'
        '<text x="{:.0f}" y="{:.0f}">{}</text>'
    ).format(
        box.label,
        box.kind,
        x,
        y,
        _WIDTH,
        _HEIGHT,
        _HEIGHT // 2 if box.kind == "topic" else 6,
        x + _WIDTH / 2,
        y + (19 if note else 27),
        label,
    )
    if note:
        drawn += Markup('<text class="note" x="{:.0f}" y="{:.0f}">{}</text>').format(
            x + _WIDTH / 2, y + 35, note
        )
    url = urls.get(box.label) if box.kind == "topic" else None
    return Markup('<a href="{}">{}</a>').format(url, drawn) if url else Markup("<g>{}</g>").format(drawn)
