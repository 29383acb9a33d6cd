"""Regular expressions over topic names, in RE2's syntax, which Kafka's brokers and its newer consumers use.

RE2 matches any expression in linear time; it has no back-references and no look-around.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Protocol, cast

from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName

_MAX_COMPILED: Final = 1024
_MAX_PROGRAM_BYTES: Final = 1 << 20


class Pattern(Protocol):
    """A compiled expression."""

    def fullmatch(self, text: str) -> object: ...


@lru_cache(maxsize=_MAX_COMPILED)
def compile_regex(regex: str) -> Pattern:
    """Compile an expression. Raises INVALID_REGULAR_EXPRESSION with RE2's message."""
    # Most brokers never get one, so the library is loaded for the first expression.
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_PROGRAM_BYTES
    try:
        return cast(Pattern, re2.compile(regex, options))
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ApiException(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {text}",
        ) from error


def matching_topics(regex: str, topics: Iterable[TopicName]) -> list[TopicName]:
    """The topics whose whole name matches. An expression that no longer compiles matches none."""
    try:
        pattern = compile_regex(regex)
    except ApiException:
        return []
    return [topic for topic in topics if pattern.fullmatch(topic)]
