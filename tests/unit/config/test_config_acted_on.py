"""The table of keys in force is true: each is read somewhere, and nothing else is."""

import ast
import re
from pathlib import Path

from ottla.config.acted_on import ACTED_ON, unused_keys
from ottla.config.definitions import BROKER_KEYS
from ottla.config.synonyms import TOPIC_SYNONYMS

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "ottla"
NODE = ("broker.py", "checks.py")
"""Modules of config/ that put keys in force themselves (roles, listeners, directories)."""

OUTSIDERS = ("config", "cli", "client", "connect", "testing")
"""What keeps the keys, or speaks of them without being a node."""

READERS = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in OUTSIDERS]
OUTSIDE = "".join(path.read_text() for path in READERS)
INSIDE = "".join((PACKAGE / "config" / name).read_text() for name in NODE)
READ = {
    node.value
    for path in READERS
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in BROKER_KEYS
}

TOPIC_DEFAULTS = {synonym.name: topic for topic, keys in TOPIC_SYNONYMS.items() for synonym in keys}


def test_every_key_in_the_table_is_read():
    for key in sorted(ACTED_ON):
        if key in TOPIC_DEFAULTS and key not in READ:
            attribute = TOPIC_DEFAULTS[key].replace(".", "_")
            property_of = {"cleanup_policy": "compact", "message_timestamp_type": "log_append_time"}
            names = {attribute, property_of.get(attribute, attribute)}
            assert any(re.search(rf"\.{name}\b", OUTSIDE) for name in names), key
        else:
            assert key in READ or f'"{key}"' in INSIDE, key


def test_every_key_that_is_read_is_in_the_table():
    assert set() == READ - ACTED_ON


def test_keys_without_effect_are_named():
    assert unused_keys(["num.io.threads", "node.id", "listener.name.x.ssl.protocol"]) == [
        "listener.name.x.ssl.protocol",
        "num.io.threads",
    ]
