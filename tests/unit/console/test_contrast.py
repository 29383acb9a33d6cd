"""Every text colour on every surface reaches 4.5:1, and every chart line 3:1, in both themes."""

from __future__ import annotations

import re

import pytest

from ottla.console.render import FOLDER

_TOKEN = re.compile(r"--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)")
TOKENS = {
    name: (light, dark) for name, light, dark in _TOKEN.findall((FOLDER / "static/base.css").read_text())
}
SURFACES = ("bg", "surface", "sunken")
INKS = ("ink", "ink-2", "ink-3", "accent", "ok", "warn", "bad", "info")
ON_ITS_OWN = [(name, f"{name}-soft") for name in ("accent", "ok", "warn", "bad", "info")]


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_every_surface(theme):
    pairs = [(ink, surface) for ink in INKS for surface in SURFACES]
    pairs += [*ON_ITS_OWN, ("on-accent", "accent"), ("ink-2", "accent-soft"), ("ink", "warn-soft")]
    low = {pair: contrast(TOKENS[pair[0]][theme], TOKENS[pair[1]][theme]) for pair in pairs}
    assert {pair: round(value, 2) for pair, value in low.items() if value < 4.5} == {}


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_chart_lines_can_be_seen(theme):
    for number in range(6):
        assert contrast(TOKENS[f"s{number}"][theme], TOKENS["surface"][theme]) >= 3
