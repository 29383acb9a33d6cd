"""The house rules that a machine can check; what they are for is in docs/ARCHITECTURE.md."""

import ast
import functools
import re
import tomllib
from pathlib import Path

import ottla

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
TEXTS = sorted(
    path
    for pattern in (
        "src/**/*",
        "tests/**/*.py",
        "docs/**/*",
        "bin/*",
        "*.md",
        "Makefile",
        "pyproject.toml",
        ".ci/*",
    )
    for path in ROOT.glob(pattern)
    if path.is_file() and path.suffix != ".pyc"
)

MAX_LINES = 600
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
MACHINE_PATHS = re.compile(r"/(?:work|root|home/[a-z]+|Users/[a-z]+)/")
REGISTRIES = re.compile(
    r"https?://[^\s/]*(?:pypi|artifactory|nexus|repo1?\.maven|npmjs)[^\s/]*", re.IGNORECASE
)


def name(path):
    return str(path.relative_to(ROOT))


@functools.cache
def text(path):
    return path.read_text(errors="replace")


@functools.cache
def tree(path):
    return ast.parse(text(path))


def calls(path, *functions):
    """Line numbers where one of the functions is called by its dotted name."""
    if not any(function in text(path) for function in functions):
        return
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in functions:
            yield node.lineno


def test_files_stay_small_enough_to_read():
    long = [name(path) for path in SOURCES + TESTS if len(text(path).splitlines()) > MAX_LINES]
    assert long == []


def test_every_module_says_what_it_owns():
    silent = [name(path) for path in SOURCES if not ast.get_docstring(tree(path))]
    assert silent == []


def test_only_the_command_line_prints():
    found = [
        f"{name(path)}:{line}" for path in SOURCES if "cli" not in path.parts for line in calls(path, "print")
    ]
    assert found == []


def test_nothing_is_left_for_later():
    found = [name(path) for path in TEXTS if UNFINISHED.search(text(path))]
    assert found == []


def test_no_code_raises_not_implemented():
    found = [name(path) for path in SOURCES if "NotImplementedError" in text(path)]
    assert found == []


def test_no_text_names_a_machine_or_a_registry():
    found = [
        f"{name(path)}: {match.group()}"
        for path in TEXTS
        for expression in (MACHINE_PATHS, REGISTRIES)
        for match in expression.finditer(text(path))
        if path != Path(__file__)
    ]
    assert found == []


def test_tests_wait_for_events_and_do_not_sleep():
    found = [f"{name(path)}:{line}" for path in TESTS for line in calls(path, "time.sleep", "sleep")]
    assert found == []


def test_every_test_is_in_a_file_that_pytest_collects():
    holders = [
        path
        for path in TESTS
        for node in tree(path).body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
    ]
    assert [name(path) for path in holders if not path.name.startswith("test_")] == []


def test_test_files_have_names_of_their_own():
    names = [path.name for path in TESTS if path.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert ottla.__version__ == project["version"]
    assert f"## {ottla.__version__}" in (ROOT / "CHANGELOG.md").read_text()
