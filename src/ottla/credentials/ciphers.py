"""Names of cipher suites: Kafka's configurations write IANA's, OpenSSL has its own."""

from __future__ import annotations

from typing import Final

from ottla.credentials.errors import CredentialsError

TLS13_SUITES: Final = frozenset(
    {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
)
"""This Python cannot choose among them: all three are on wherever TLS 1.3 is."""

TLS12_DEFAULT: Final = (
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"
)
"""Forward secrecy and authenticated encryption; the server's order counts."""

_AUTHENTICATED: Final = {
    "GCM_SHA256": "GCM-SHA256",
    "GCM_SHA384": "GCM-SHA384",
}
_EXCHANGES: Final = ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA")


def _openssl_names() -> dict[str, str]:
    names: dict[str, str] = {}
    for exchange in _EXCHANGES:
        dashed = exchange.replace("_", "-")
        for bits in ("128", "256"):
            for mode, openssl_mode in _AUTHENTICATED.items():
                if (bits == "128") == mode.endswith("256"):
                    names[f"TLS_{exchange}_WITH_AES_{bits}_{mode}"] = f"{dashed}-AES{bits}-{openssl_mode}"
            names[f"TLS_{exchange}_WITH_AES_{bits}_CBC_SHA"] = f"{dashed}-AES{bits}-SHA"
        names[f"TLS_{exchange}_WITH_CHACHA20_POLY1305_SHA256"] = f"{dashed}-CHACHA20-POLY1305"
        names[f"TLS_{exchange}_WITH_AES_128_CBC_SHA256"] = f"{dashed}-AES128-SHA256"
        names[f"TLS_{exchange}_WITH_AES_256_CBC_SHA384"] = f"{dashed}-AES256-SHA384"
    return names


_OPENSSL: Final = _openssl_names()


def cipher_list(suites: list[str], *, tls13: bool) -> str:
    """OpenSSL's list for TLS 1.2, from IANA's or OpenSSL's names. Raises for what cannot be granted."""
    if not suites:
        return TLS12_DEFAULT
    named = TLS13_SUITES.intersection(suites)
    if tls13 and named != TLS13_SUITES:
        missing = ", ".join(sorted(TLS13_SUITES - named))
        raise CredentialsError(
            f"ssl.cipher.suites leaves out {missing}, which cannot be switched off while TLSv1.3 is enabled; "
            "name all three or take TLSv1.3 out of ssl.enabled.protocols"
        )
    older = [_OPENSSL.get(suite, suite) for suite in suites if suite not in TLS13_SUITES]
    for openssl in older:
        if openssl.startswith("TLS_"):
            raise CredentialsError(f"ssl.cipher.suites: the suite {openssl} is not supported")
    return ":".join(older) or TLS12_DEFAULT
