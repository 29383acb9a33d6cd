"""A client of Kafka Connect's REST API, for the command line; it works with Java's workers too."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import quote

from ottla.connect.failures import ConnectError
from ottla.json_types import Json

_TIMEOUT_S: Final = 95.0
_MOST_BYTES: Final = 64 << 20


class RestClient:
    """Calls one worker."""

    def __init__(self, url: str) -> None:
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")

    def call(self, method: str, path: str, body: Json = None) -> Any:
        """The answer of a worker; ConnectError with its message."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, method=method, data=data, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                text = answer.read(_MOST_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                raise ConnectError(_message(error)) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise ConnectError(
                f"no Connect worker answers at {self.url} ({reason}): start one with `ottla connect run`, or name "
                "another with --connect-url"
            ) from None
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise ConnectError(f"the answer of {self.url} is not that of a Connect worker") from None


def _message(error: urllib.error.HTTPError) -> str:
    try:
        found = json.loads(error.read(_MOST_BYTES))
        return str(found["message"])
    except (ValueError, KeyError, TypeError):
        return f"the worker answers {error.code} {error.reason}"


def one(name: str, rest: str = "") -> str:
    """The path of a connector."""
    return f"/connectors/{quote(name, safe='')}{rest}"
