"""The reference is complete: generated parts name every key and command, and every public name has its entry."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import click
import pytest

import ottla
import ottla.pipeline
import ottla.streams
import ottla.testing
from docs.doc_blocks import ROOT
from ottla.cli.main import main as ottla_command
from ottla.config.acted_on import ACTED_ON
from ottla.config.definitions import BROKER_KEYS, TOPIC_KEYS
from ottla.config.documentation import documentation
from ottla.controller.resource_configs import CLIENT_METRICS_KEYS, GROUP_KEYS

REFERENCE = ROOT / "docs" / "reference"
_ENTRY = re.compile(r"^::: (?P<name>[\w.]+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_pages", ROOT / "scripts" / "reference_pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _first_column(table: str) -> set[str]:
    return set(re.findall(r"^(?:\| |- )`([a-z0-9.]+)`", table, re.MULTILINE))


def test_the_documentation_lists_the_keys_in_force(pages: ModuleType) -> None:
    assert _first_column(pages.broker_keys()) == ACTED_ON
    assert _first_column(pages.topic_keys()) == set(TOPIC_KEYS)


def test_the_other_keys_are_named_as_without_effect(pages: ModuleType) -> None:
    internal = {name for name, key in BROKER_KEYS.items() if key.internal}
    assert _first_column(pages.keys_without_effect()) == set(BROKER_KEYS) - ACTED_ON - internal


def test_the_meaning_of_each_key_is_what_describe_configs_answers(pages: ModuleType) -> None:
    shown = {
        "broker": pages.broker_keys() + "\n" + pages.keys_without_effect(),
        "topic": pages.topic_keys(),
        "group": pages.group_keys(),
        "client-metrics": pages.client_metrics_keys(),
    }
    internal = {name for name, key in BROKER_KEYS.items() if key.internal}
    keys = {
        "broker": set(BROKER_KEYS) - (internal - ACTED_ON),
        "topic": set(TOPIC_KEYS),
        "group": set(GROUP_KEYS),
        "client-metrics": set(CLIENT_METRICS_KEYS),
    }
    for scope, names in keys.items():
        assert _first_column(shown[scope]) == names
        assert [name for name in names if documentation(scope, name) not in shown[scope]] == []


def test_every_command_and_flag_is_listed(pages: ModuleType) -> None:
    text = pages.commands()
    context = click.Context(ottla_command, info_name="ottla")
    names = ottla_command.list_commands(context)
    assert [name for name in names if f"### ottla {name}\n" not in text] == []
    for name in names:
        command = ottla_command.get_command(context, name)
        assert command is not None
        flags = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
        assert [flag.opts[-1] for flag in flags if f"{flag.opts[-1]}" not in text] == [], name


def test_pages_ask_only_for_parts_that_exist(pages: ModuleType) -> None:
    asked = {
        name
        for page in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"^<!-- generated: ([a-z-]+) -->$", page.read_text(), re.MULTILINE)
    }
    assert asked == set(pages.PARTS)


def test_every_public_name_has_an_entry() -> None:
    listed = {match["name"] for page in REFERENCE.glob("*.md") for match in _ENTRY.finditer(page.read_text())}
    public = {f"ottla.{name}" for name in ottla._MODULE_OF}
    for package in (ottla.streams, ottla.pipeline, ottla.testing):
        public |= {f"{package.__name__}.{name}" for name in package.__all__}
    assert sorted(public - listed) == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [
        page for page in pages if not re.search(rf"- (?:Home: )?{re.escape(page)}$", navigation, re.MULTILINE)
    ] == []


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_of_the_front_page_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text())
    assert [target for target in targets if not (ROOT / target).exists()] == []
