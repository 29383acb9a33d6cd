"""A topology as a picture: Mermaid text, and SVG without any other program."""

from __future__ import annotations

from xml.sax.saxutils import escape

from ottla.streams.graph.operators import Sink, Source
from ottla.streams.graph.topology import Node, Topology

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 300, 34, 24, 34, 20


def mermaid(topology: Topology) -> str:
    """For a Markdown page: topics, operators by sub-topology, stores."""
    lines = ["flowchart TB"]
    for part in topology.subtopologies():
        lines.append(f'  subgraph part{part.id}["Sub-topology {part.id}"]')
        lines += [f'    {_id(node.name)}["{node.name}"]' for node in part.nodes]
        lines.append("  end")
    for node in topology.nodes.values():
        lines += [f"  {_id(node.name)} --> {_id(child.name)}" for child in node.children]
        lines += [f'  {_id(node.name)} --- {_id("store " + store)}[("{store}")]' for store in node.stores]
        lines += [f'  {_id("topic " + topic)}(["{topic}"]) --> {_id(node.name)}' for topic in _read_by(node)]
        lines += [
            f'  {_id(node.name)} --> {_id("topic " + topic)}(["{topic}"])' for topic in _written_by(node)
        ]
    return "\n".join(lines) + "\n"


def _id(name: str) -> str:
    return "n_" + "".join(letter if letter.isalnum() else "_" for letter in name)


def _read_by(node: Node) -> tuple[str, ...]:
    return node.operator.topics if isinstance(node.operator, Source) else ()


def _written_by(node: Node) -> tuple[str, ...]:
    if not isinstance(node.operator, Sink):
        return ()
    return (node.operator.topic if isinstance(node.operator.topic, str) else "chosen for each record",)


def picture(topology: Topology) -> dict[str, list[object]]:
    """Boxes and arrows for other programs that draw: the content of `topology.json`."""
    boxes, arrows = _boxes(topology)
    return {
        "boxes": [{"name": name, "label": label, "kind": kind} for name, (label, kind) in boxes.items()],
        "arrows": [[one, other] for one, other in arrows],
    }


def svg(topology: Topology) -> str:
    """Boxes in rows, each below its parents, with topics at both ends."""
    boxes, arrows = _boxes(topology)
    rows: dict[int, list[str]] = {}
    depth = _depths(boxes, arrows)
    for box in boxes:
        rows.setdefault(depth[box], []).append(box)
    places = {
        box: (_MARGIN + column * (_WIDTH + _GAP_X), _MARGIN + row * (_HEIGHT + _GAP_Y))
        for row, members in rows.items()
        for column, box in enumerate(members)
    }
    width = 2 * _MARGIN + max(len(members) for members in rows.values()) * (_WIDTH + _GAP_X) - _GAP_X
    height = 2 * _MARGIN + (max(rows) + 1) * (_HEIGHT + _GAP_Y) - _GAP_Y
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>',
    ]
    parts += [_arrow(places[one], places[other]) for one, other in arrows]
    parts += [_box(name, *boxes[name], places[name]) for name in boxes]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _boxes(topology: Topology) -> tuple[dict[str, tuple[str, str]], list[tuple[str, str]]]:
    """Names to (label, kind), and arrows between them."""
    boxes: dict[str, tuple[str, str]] = {}
    arrows: list[tuple[str, str]] = []
    for node in topology.nodes.values():
        stores = f" [{', '.join(node.stores)}]" if node.stores else ""
        boxes[node.name] = (node.name + stores, "store" if stores else "plain")
        for topic in _read_by(node):
            boxes[f"topic {topic}"] = (topic, "topic")
            arrows.append((f"topic {topic}", node.name))
        arrows += [(node.name, child.name) for child in node.children]
        for topic in _written_by(node):
            boxes[f"topic {topic}"] = (topic, "topic")
            arrows.append((node.name, f"topic {topic}"))
    return boxes, arrows


def _depths(boxes: dict[str, tuple[str, str]], arrows: list[tuple[str, str]]) -> dict[str, int]:
    depth = dict.fromkeys(boxes, 0)
    for _ in range(len(boxes)):
        moved = False
        for one, other in arrows:
            if depth[other] < depth[one] + 1 <= len(boxes):
                depth[other] = depth[one] + 1
                moved = True
        if not moved:
            break
    return depth


def _arrow(one: tuple[int, int], other: tuple[int, int]) -> str:
    x1, y1 = one[0] + _WIDTH // 2, one[1] + _HEIGHT
    x2, y2 = other[0] + _WIDTH // 2, other[1]
    return f'<path d="M{x1} {y1} L{x2} {y2}" stroke="#555" fill="none" marker-end="url(#tip)"/>'


def _box(name: str, label: str, kind: str, place: tuple[int, int]) -> str:
    colour = {"plain": "#eef3fb", "store": "#fdf3d8", "topic": "#e3f3e6"}[kind]
    corner = 16 if kind == "topic" else 4
    shown = label if len(label) <= 52 else label[:51] + "…"
    return (
        f'<g><title>{escape(label)}</title><rect x="{place[0]}" y="{place[1]}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'rx="{corner}" fill="{colour}" stroke="#888"/><text x="{place[0] + _WIDTH // 2}" y="{place[1] + 21}" '
        f'text-anchor="middle">{escape(shown)}</text></g>'
    )
