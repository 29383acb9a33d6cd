"""Bounds on what a schema may cost: size, depth, types and references."""

from __future__ import annotations

from typing import Final

MAX_SCHEMA_BYTES: Final = 1_000_000
"""The text of a schema with its references' texts. Kafka's own default limit of a record is as large."""
MAX_BODY_BYTES: Final = 4 << 20
MAX_DEPTH: Final = 100
"""Levels of nesting in a schema."""
MAX_NODES: Final = 20_000
"""Types and fields in a schema, references included."""
MAX_REFERENCES: Final = 256
"""Schemas that one schema may reach through references."""
MAX_COMPARED_PAIRS: Final = 100_000
"""Pairs of types that one comparison may look at."""
MAX_ALL_PAIRS: Final = 1_000_000
"""Pairs in the comparisons with all versions of a subject."""
MAX_COMPARED_ENTRIES: Final = 1_000_000
"""Symbols, values and keywords that one comparison may look at, again for each pair."""
MAX_DEFAULT_CHECKS: Final = 1_000_000
"""Values of defaults that are checked against types, again for each branch of a union."""
MAX_NAME_CHARS: Final = 4_096
"""A full name in Avro, an address in JSON Schema: types below it repeat it."""
MAX_SHOWN_CHARS: Final = 1_000
"""A path or a sentence of an error."""
MAX_MESSAGES: Final = 50
"""Incompatibilities that one answer lists."""
MAX_SUBJECT_CHARS: Final = 1024
MAX_KEKS: Final = 10_000
MAX_DEKS: Final = 100_000
"""Encryption keys that the registry holds in memory."""
MAX_KEY_BYTES: Final = 16_384
"""An encrypted key. A key of AES has 64 bytes at most; key management services add some hundred."""
MAX_KEY_TEXT_CHARS: Final = 4_096
MAX_KMS_PROPERTIES: Final = 100
MAX_ASSOCIATIONS: Final = 100_000
MAX_RULES: Final = 1_000
"""Rules of one schema."""
