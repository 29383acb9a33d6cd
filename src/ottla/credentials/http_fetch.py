"""Small documents over HTTPS: key sets and tokens. Bounded in time and size, and never sent on to another origin."""

from __future__ import annotations

import http.client
import ipaddress
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from ottla.credentials.errors import CredentialsError

TIMEOUT_S: Final = 5.0
MAX_DOCUMENT_BYTES: Final = 1 << 20
_SHOWN_CHARACTERS: Final = 200


class FetchFailed(CredentialsError):
    """No document came; the text says why. `body` is what the server said about it, if anything."""

    def __init__(self, why: str, body: bytes = b"") -> None:
        super().__init__(why)
        self.body = body


def check_url(key: str, url: str) -> str:
    """Refuse addresses that are neither https nor a file; http only on this machine. Gives the scheme."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path and not parts.netloc:
        return "file"
    if parts.scheme == "https" and parts.hostname and not parts.username:
        return "https"
    if parts.scheme == "http" and parts.hostname and not parts.username and _is_loopback(parts.hostname):
        return "http"
    raise CredentialsError(f"{key} must be an https: or file: address (http: only on this machine)")


def file_path(url: str) -> str:
    """The path of a `file:` address."""
    return urllib.request.url2pathname(urlsplit(url).path)


def fetch(
    url: str,
    *,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """GET, or POST with data. Raises FetchFailed. Call it in a thread: it blocks."""
    request = urllib.request.Request(url, data=data, headers=dict(headers or {}))
    opener = urllib.request.build_opener(
        _SameOrigin(), urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(request, timeout=timeout_s) as response:
            body: bytes = response.read(MAX_DOCUMENT_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise FetchFailed(f"{_origin(url)} answers {error.code}", error.read(4096)) from None
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise FetchFailed(f"{_origin(url)} cannot be reached: {printable(str(reason))}") from None
    if len(body) > MAX_DOCUMENT_BYTES:
        raise FetchFailed(f"{_origin(url)} sends more than {MAX_DOCUMENT_BYTES} bytes")
    return body


class _SameOrigin(urllib.request.HTTPRedirectHandler):
    """Follows a redirection within the origin, and no other: it could lead to a service of the inner network."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: object,
        code: int,
        msg: str,
        headers: object,
        newurl: str,
    ) -> urllib.request.Request | None:
        if _origin(newurl) != _origin(req.full_url):
            raise FetchFailed(f"{_origin(req.full_url)} redirects to another origin, which is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def printable(text: str) -> str:
    """A foreign text for a log or an error: one line, bounded."""
    return "".join(char if char.isprintable() else "?" for char in text[:_SHOWN_CHARACTERS])


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
