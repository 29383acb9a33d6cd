"""A certificate's subject in the text that Java's `X500Principal.getName()` gives: RFC 2253, last name first.

Types other than the nine of RFC 2253 print as their OID with the DER of the value, which
`cryptography`'s own text form does not do.
"""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.x509.name import _ASN1Type

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_SPECIAL: Final = frozenset(',=+<>#;"\\')


def distinguished_name(name: x509.Name) -> str:
    """The name as Kafka's principal builder sees it."""
    return ",".join("+".join(_attribute(each) for each in rdn) for rdn in reversed(name.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    oid = attribute.oid.dotted_string
    keyword = _KEYWORDS.get(oid)
    if keyword is None or isinstance(attribute.value, bytes):
        return f"{oid if keyword is None else keyword}=#{_der(attribute).hex()}"
    return f"{keyword}={_escaped(attribute.value)}"


def _escaped(value: str) -> str:
    text = "".join("\\" + char if char in _SPECIAL else char for char in value)
    if text.startswith(" "):
        text = "\\" + text
    if value.endswith(" ") and len(value) > 1:
        text = text[:-1] + "\\ "
    return text


def _der(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    value = attribute.value
    kind: _ASN1Type = attribute._type
    encoded = value if isinstance(value, bytes) else value.encode(_ENCODINGS.get(kind, "utf-8"))
    length = len(encoded)
    if length < 0x80:
        head = bytes((length,))
    else:
        size = (length.bit_length() + 7) // 8
        head = bytes((0x80 | size,)) + length.to_bytes(size, "big")
    return bytes((kind.value,)) + head + encoded


_ENCODINGS: Final = {_ASN1Type.BMPString: "utf-16-be", _ASN1Type.UniversalString: "utf-32-be"}
