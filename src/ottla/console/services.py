"""Services beside a cluster: a schema registry, a Connect worker, applications. The console asks only addresses that
it was started with or that the profile names; an answer never leads it elsewhere.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from ottla.errors import ApiException, ErrorCode
from ottla.json_types import Json

if TYPE_CHECKING:
    from ottla.console.settings import Target

REGISTRY: Final = "schema.registry.url"
REGISTRY_USER: Final = "basic.auth.user.info"
CONNECT: Final = "connect.url"
APPLICATIONS: Final = "ottla.applications"
PROMETHEUS: Final = "prometheus.url"
Answer: TypeAlias = Any
"""The JSON of a service beside the cluster. Its reader catches what another program may answer instead."""

_TIMEOUT_S: Final = 10.0
_SHORT_S: Final = 3.0
"""For what is only a part of a page."""
_MOST_BYTES: Final = 16 << 20


class ServiceProblem(ApiException):
    """A service refuses a request or does not answer. `status` is 0 where there was no answer."""

    def __init__(self, message: str, status: int = 0, code: int = 0) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST if status else ErrorCode.NETWORK_EXCEPTION, message)
        self.status = status
        self.error_code = code


@dataclass(frozen=True, slots=True)
class Service:
    """An address that answers with JSON. It blocks: a thread calls it."""

    kind: str
    url: str
    """Without the user and the password."""
    user_info: str = field(default="", repr=False)
    timeout_s: float = _TIMEOUT_S

    @classmethod
    def at(cls, kind: str, text: str, user_info: str = "", timeout_s: float = _TIMEOUT_S) -> Service:
        """The service of an address like `http://user:password@host:port`; ApiException for anything else."""
        parts = urlsplit(text.strip() if "://" in text else f"http://{text.strip()}")
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise ApiException(
                ErrorCode.INVALID_REQUEST,
                f"the address of the {kind} must be like http://host:port, not {parts.scheme}://{parts.hostname}",
            )
        if parts.username is not None:
            user_info = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        place = f"{host}:{port}" if port else host
        return cls(kind, f"{parts.scheme}://{place}{parts.path.rstrip('/')}", user_info, timeout_s)

    def ask(self, method: str, path: str, body: Json = None) -> Answer:
        """The answer to a request; ServiceProblem with the service's own sentence if it refuses."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(
                host, parts.port, timeout=self.timeout_s, context=context
            )
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=self.timeout_s)
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self.user_info:
            headers["Authorization"] = f"Basic {base64.b64encode(self.user_info.encode()).decode()}"
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, parts.path + path, data, headers)
            response = connection.getresponse()
            raw = response.read(_MOST_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:200]
            raise ServiceProblem(f"The {self.kind} at {self.url} does not answer: {reason}.") from None
        finally:
            connection.close()
        if len(raw) > _MOST_BYTES:
            raise ServiceProblem(
                f"The answer of the {self.kind} at {self.url} is larger than {_MOST_BYTES:,} bytes."
            )
        try:
            answer = json.loads(raw) if raw.strip() else None
        except (ValueError, RecursionError):
            answer = None
            if response.status < 300:
                raise ServiceProblem(
                    f"What answers at {self.url} is no {self.kind}.", response.status
                ) from None
        if response.status >= 300:
            found = answer if isinstance(answer, dict) else {}
            text = str(found.get("message") or found.get("error") or response.reason)[:2000]
            code = found.get("error_code", response.status)
            raise ServiceProblem(
                f"The {self.kind} answers {response.status}: {text}",
                response.status,
                code if isinstance(code, int) else response.status,
            )
        return answer


@dataclass(frozen=True, slots=True)
class Services:
    """What is beside one cluster."""

    registry: Service | None = None
    connect: Service | None = None
    applications: tuple[str, ...] = ()
    """Directories of applications, and addresses of their status."""
    prometheus: Service | None = None
    data: Path | None = None
    """A broker's directory on this machine."""

    @classmethod
    def of(
        cls,
        target: Target,
        registry: str = "",
        connect: str = "",
        applications: Sequence[str] = (),
        prometheus: str = "",
        data: Path | None = None,
    ) -> Services:
        """The services that a profile names; those of the command come first."""
        own: Mapping[str, str] = target.properties
        registry = (registry or own.get(REGISTRY, "")).partition(",")[0]
        connect = (connect or own.get(CONNECT, "")).partition(",")[0]
        prometheus = prometheus or own.get(PROMETHEUS, "")
        more = [each.strip() for each in own.get(APPLICATIONS, "").split(",") if each.strip()]
        return cls(
            Service.at("schema registry", registry, own.get(REGISTRY_USER, "")) if registry else None,
            Service.at("Connect worker", connect) if connect else None,
            (*applications, *more),
            Service.at("Prometheus", prometheus, timeout_s=_SHORT_S) if prometheus else None,
            data,
        )
