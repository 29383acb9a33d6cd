"""Contexts and subjects: `:.context:subject` names a subject outside the default context."""

from __future__ import annotations

import unicodedata
from typing import Final

from ottla.registry.errors import invalid_subject
from ottla.registry.limits import MAX_SUBJECT_CHARS

DEFAULT_CONTEXT: Final = "."
GLOBAL_NAMES: Final = ("__GLOBAL", "__EMPTY")


def split(subject: str) -> tuple[str, str]:
    """A qualified subject as its context (with the leading dot) and its name."""
    if subject.startswith(":."):
        end = subject.find(":", 1)
        if end > 0:
            return subject[1:end], subject[end + 1 :]
    return DEFAULT_CONTEXT, subject


def context_of(subject: str | None) -> str:
    """The context of a qualified subject; the default one for None."""
    return DEFAULT_CONTEXT if subject is None else split(subject)[0]


def qualify(context: str, name: str) -> str:
    """The qualified name of a subject; names in the default context stay plain."""
    return name if context == DEFAULT_CONTEXT else f":{context}:{name}"


def normalize(subject: str) -> str:
    """The one spelling of a subject: `:.:orders` is `orders`."""
    return qualify(*split(subject))


def within(subject: str, referrer: str) -> str:
    """A reference's subject, which is in the referrer's context unless it names one."""
    return subject if subject.startswith(":.") else qualify(context_of(referrer), subject)


def check(subject: str) -> str:
    """The subject, normalized; 42208 where no topic or record can have such a name."""
    plain = split(subject)[1]
    if (
        not plain
        or len(subject) > MAX_SUBJECT_CHARS
        or plain in GLOBAL_NAMES
        or any(unicodedata.category(char) == "Cc" for char in subject)
    ):
        raise invalid_subject(subject[:MAX_SUBJECT_CHARS])
    return normalize(subject)


def check_scope(subject: str) -> str:
    """A subject of a setting, or a whole context (`:.context:`)."""
    context, plain = split(subject)
    return f":{context}:" if not plain and context != DEFAULT_CONTEXT else check(subject)
