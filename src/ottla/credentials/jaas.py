"""Java's JAAS text: `sasl.jaas.config` and files with login contexts.

The tokens are those of Java's StreamTokenizer as Kafka sets it up: words, quoted text with escapes, `//` and
`/* */` comments. A module's name is only looked up in a table; no code is ever loaded by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.credentials.errors import CredentialsError
from ottla.credentials.secret import HIDDEN

_FLAGS: Final = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
_ESCAPES: Final = {"a": "\x07", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\x0b"}
_OCTAL: Final = "01234567"

MECHANISMS: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": "PLAIN",
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": "OAUTHBEARER",
    "com.sun.security.auth.module.Krb5LoginModule": "GSSAPI",
    "com.ibm.security.auth.module.Krb5LoginModule": "GSSAPI",
}
"""The login modules that mean something here, with their mechanism."""


class LoginModule(NamedTuple):
    """One entry of a login context."""

    name: str
    flag: str
    options: dict[str, str]

    @property
    def mechanism(self) -> str:
        """PLAIN, SCRAM, OAUTHBEARER or GSSAPI. Raises for a module that Kafka's users do not name."""
        try:
            return MECHANISMS[self.name]
        except KeyError:
            raise CredentialsError(
                f"the login module {self.name} is not supported; expected one of {', '.join(MECHANISMS)}"
            ) from None

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r}, options={dict.fromkeys(self.options, HIDDEN)})"


class _Token(NamedTuple):
    text: str
    is_word: bool
    """A word or a quoted text; otherwise a sign such as `=` or `;`, or a number, which is no value in JAAS."""


def parse_modules(text: str) -> list[LoginModule]:
    """The modules of a `sasl.jaas.config`. At least one, or it raises."""
    tokens = list(_tokens(text))
    modules, position = [], 0
    while position < len(tokens):
        module, position = _module(tokens, position)
        modules.append(module)
    if not modules:
        raise CredentialsError("Login module not specified in JAAS config")
    return modules


def parse_file(text: str) -> dict[str, list[LoginModule]]:
    """The login contexts of a JAAS file by name: `KafkaServer { module required key="value"; };`."""
    tokens = list(_tokens(text))
    contexts: dict[str, list[LoginModule]] = {}
    position = 0
    while position < len(tokens):
        name = _word(tokens, position, "the name of a login context")
        if _sign(tokens, position + 1) != "{":
            raise CredentialsError(f"JAAS file: expected {{ after the context {name}")
        position += 2
        modules: list[LoginModule] = []
        while _sign(tokens, position) != "}":
            module, position = _module(tokens, position)
            modules.append(module)
        if _sign(tokens, position + 1) != ";":
            raise CredentialsError(f"JAAS file: expected ; after the context {name}")
        position += 2
        if name in contexts:
            raise CredentialsError(f"JAAS file: the context {name} appears twice")
        contexts[name] = modules
    return contexts


def _module(tokens: list[_Token], position: int) -> tuple[LoginModule, int]:
    name = _word(tokens, position, "a login module")
    if position + 1 >= len(tokens):
        raise CredentialsError("Login module control flag not specified in JAAS config")
    flag = _word(tokens, position + 1, "a login module control flag").upper()
    if flag not in _FLAGS:
        raise CredentialsError(f"Invalid login module control flag '{flag}' in JAAS config")
    position += 2
    options: dict[str, str] = {}
    while (sign := _sign(tokens, position)) != ";":
        if position >= len(tokens):
            raise CredentialsError("JAAS config entry not terminated by semi-colon")
        if sign is not None:
            raise CredentialsError(f"JAAS config: expected an option or ;, found {sign!r}")
        key = tokens[position].text
        if (
            _sign(tokens, position + 1) != "="
            or position + 2 >= len(tokens)
            or not tokens[position + 2].is_word
        ):
            raise CredentialsError(f"Value not specified for key '{key}' in JAAS config")
        options[key] = tokens[position + 2].text
        position += 3
    return LoginModule(name, flag, options), position + 1


def _word(tokens: list[_Token], position: int, what: str) -> str:
    if position >= len(tokens) or not tokens[position].is_word:
        raise CredentialsError(f"JAAS config: expected {what}")
    return tokens[position].text


def _sign(tokens: list[_Token], position: int) -> str | None:
    """The sign at a position; None for a word or the end."""
    if position >= len(tokens) or tokens[position].is_word:
        return None
    return tokens[position].text


def _tokens(text: str) -> Iterator[_Token]:
    position, end = 0, len(text)
    while position < end:
        char = text[position]
        if char <= " ":
            position += 1
        elif text.startswith("//", position):
            position = _line_end(text, position)
        elif text.startswith("/*", position):
            closing = text.find("*/", position + 2)
            position = end if closing < 0 else closing + 2
        elif char == "/":
            # StreamTokenizer's own comment character.
            position = _line_end(text, position)
        elif char in "\"'":
            quoted, position = _quoted(text, position)
            yield _Token(quoted, True)
        elif _starts_word(char):
            start = position
            while position < end and _in_word(text[position]):
                position += 1
            yield _Token(text[start:position], True)
        elif char in "0123456789.":
            start = position
            while position < end and text[position] in "0123456789.":
                position += 1
            yield _Token(text[start:position], False)
        else:
            yield _Token(char, False)
            position += 1


def _line_end(text: str, position: int) -> int:
    while position < len(text) and text[position] not in "\r\n":
        position += 1
    return position


def _starts_word(char: str) -> bool:
    return (char.isascii() and char.isalpha()) or char in "-_$" or char >= "\xa0"


def _in_word(char: str) -> bool:
    return _starts_word(char) or char in "0123456789."


def _quoted(text: str, position: int) -> tuple[str, int]:
    """A quoted text up to its closing quote, or to the end of the line, as Java takes it."""
    quote = text[position]
    position += 1
    found: list[str] = []
    while position < len(text) and text[position] not in (quote, "\n", "\r"):
        char = text[position]
        position += 1
        if char == "\\" and position < len(text):
            char = text[position]
            position += 1
            if char in _OCTAL:
                digits = char
                while (
                    position < len(text)
                    and text[position] in _OCTAL
                    and len(digits) < (3 if digits[0] <= "3" else 2)
                ):
                    digits += text[position]
                    position += 1
                char = chr(int(digits, 8))
            else:
                char = _ESCAPES.get(char, char)
        found.append(char)
    if position < len(text) and text[position] == quote:
        position += 1
    return "".join(found), position
