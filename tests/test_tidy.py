"""The house rules that a machine can check; what they are for is in docs/ARCHITECTURE.md."""

import ast
import functools
import re
import tomllib
from collections import Counter
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
        "scripts/*.py",
        "examples/*",
        ".github/**/*",
        "*.md",
        "*.yml",
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
OTHER_LOGGERS = {
    # The command line logs for the whole program.
    ("src/ottla/cli/start.py", "_logger", '"ottla"'),
    # The messages of librdkafka, apart from those of the client itself.
    ("src/ottla/client/engine_log.py", "_LOG", '"ottla.client.engine"'),
    # Kafka's name for the log of permissions granted and denied.
    ("src/ottla/security/grants.py", "audit_log", '"kafka.authorizer.logger"'),
}
BANNED_WORDS = re.compile(
    r"(?<![a-z])(?:an" r"ew|in va" r"in|let b" r"e|nobody a" r"sks|to" r"ld|vig" r"il|who" r"ever)(?![a-z])",
    re.IGNORECASE,
)
"""Words that STYLE keeps out of prose and names: their sentences have a plainer form."""


ANY = re.compile(r"\bAny\b")
MOST_ANY = {
    "__init__": 2,
    "admin": 4,
    "api": 4,
    "broker": 4,
    "cli": 8,
    "client": 26,
    "config": 2,
    "connect": 20,
    "console": 6,
    "controller": 4,
    "coordinator": 10,
    "credentials": 2,
    "metadata": 2,
    "metrics": 2,
    "net": 4,
    "pipeline": 2,
    "registry": 2,
    "schemas": 2,
    "streams": 6,
    "testing": 19,
    "wire": 5,
}
"""The most lines with `Any` in a package. Lower a bound when you can; a new package begins with none."""
ALIAS_OF_ANY = re.compile(r"^(\w+)(?:: TypeAlias)? = Any$", re.MULTILINE)
ALIASES_OF_ANY = {
    "connect: Connection",
    "connect: ConnectValue",
    "connect: Cursor",
    "connect: RedisClient",
    "connect: Setting",
    "connect: Split",
    "connect: SqlValue",
    "connect: Bson",
    "connect: Written",
    "console: Answer",
    "schemas: Value",
    "streams: Unknown",
}


def name(path):
    return str(path.relative_to(ROOT))


@functools.cache
def text(path):
    return path.read_text(errors="replace")


def calls(path, *functions):
    """Line numbers where one of the functions is called by its dotted name. Few files are parsed: most name none."""
    if not re.search(rf"\b(?:{'|'.join(map(re.escape, functions))})\(", text(path)):
        return
    for node in ast.walk(ast.parse(text(path))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in functions:
            yield node.lineno


def test_any_stays_rare_and_its_aliases_known():
    """Each package has a bound on its lines with `Any`; a name for `Any` says in one place what cannot be typed."""
    found = Counter()
    aliases = set()
    for path in SOURCES:
        package = path.relative_to(ROOT / "src" / "ottla").parts[0].removesuffix(".py")
        if "Any" in text(path):
            found[package] += sum(bool(ANY.search(line)) for line in text(path).splitlines())
            aliases |= {f"{package}: {alias}" for alias in ALIAS_OF_ANY.findall(text(path))}
    assert sum(MOST_ANY.values()) <= 150
    assert {package: count for package, count in found.items() if count > MOST_ANY.get(package, 0)} == {}
    assert aliases == ALIASES_OF_ANY


def test_files_stay_small_enough_to_read():
    long = [name(path) for path in SOURCES + TESTS if len(text(path).splitlines()) > MAX_LINES]
    assert long == []


def test_the_folders_of_unit_tests_are_the_packages_of_the_source():
    unit, package = ROOT / "tests" / "unit", ROOT / "src" / "ottla"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("*.py")}
    assert sorted(str(folder) for folder in folders if not (package / folder).is_dir()) == []


def test_every_module_says_what_it_owns():
    docstring = re.compile(r"""\s*(?:#[^\n]*\n\s*)*r?(?:\"{3}|"(?!"))\s*[^\s"]""")
    silent = [name(path) for path in SOURCES if not docstring.match(text(path))]
    assert silent == []


def test_only_the_command_line_prints():
    found = [
        f"{name(path)}:{line}" for path in SOURCES if "cli" not in path.parts for line in calls(path, "print")
    ]
    assert found == []


def test_nothing_is_left_for_later():
    found = [name(path) for path in TEXTS if UNFINISHED.search(text(path))]
    assert found == []


def test_every_module_logs_under_its_own_name():
    """A logger is called `_logger` and carries its module's name, so that levels can be set by package."""
    loggers = re.compile(r"^(\w+) = logging\.getLogger\((.*)\)$", re.MULTILINE)
    found = {(name(path), *match.groups()) for path in SOURCES for match in loggers.finditer(text(path))}
    others = {one for one in found if one[1:] != ("_logger", "__name__")}
    assert others <= OTHER_LOGGERS, others - OTHER_LOGGERS


def test_no_code_raises_not_implemented():
    found = [name(path) for path in SOURCES if "NotImplementedError" in text(path)]
    assert found == []


def test_prose_and_names_are_plain_english():
    """Names of tests are left out: they are sentences of their own, and the history refers to them."""
    found = [
        f"{name(path)}:{number}: {word.group()}"
        for path in TEXTS
        if BANNED_WORDS.search(text(path))
        for number, line in enumerate(text(path).splitlines(), 1)
        for word in BANNED_WORDS.finditer(re.sub(r"\btest_\w+", "", line))
    ]
    assert not found, found


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
    tests = re.compile(r"^(?:async )?def test_", re.MULTILINE)
    lost = [name(path) for path in TESTS if not path.name.startswith("test_") and tests.search(text(path))]
    assert lost == []


def test_test_files_have_names_of_their_own():
    names = [path.name for path in TESTS if path.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert ottla.__version__ == project["version"]
    assert f"## {ottla.__version__}" in (ROOT / "CHANGELOG.md").read_text()
