"""The paths /, /health, /admin/loggers and /metrics."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ottla import __version__
from ottla.connect.failures import BadRequest, NotFound
from ottla.connect.rest.errors import json_body
from ottla.json_types import JsonObject

if TYPE_CHECKING:
    from ottla.connect.worker import Worker

SPOKEN_VERSION: Final = "4.3.1"
_LEVELS: Final = {
    "OFF": 60,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
    "ALL": 1,
}
_modified: dict[str, int] = {}


def _worker(request: Request) -> Worker:
    worker: Worker = request.app.state.worker
    return worker


async def root(request: Request) -> Response:
    """GET /"""
    worker = _worker(request)
    return JSONResponse(
        {"version": SPOKEN_VERSION, "commit": f"ottla-{__version__}", "kafka_cluster_id": worker.cluster_id}
    )


async def health(request: Request) -> Response:
    """GET /health"""
    status, message = _worker(request).health()
    code = {"healthy": 200, "starting": 503}.get(status, 500)
    return JSONResponse({"status": status, "message": message}, code)


def _level_name(number: int) -> str:
    return min(_LEVELS, key=lambda name: (abs(_LEVELS[name] - number), name))


def _logger_json(name: str) -> JsonObject:
    found = logging.getLogger(None if name == "root" else name)
    return {"level": _level_name(found.getEffectiveLevel()), "last_modified": _modified.get(name)}


def _known_loggers() -> list[str]:
    named = [name for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger)]
    return ["root", *sorted(named)]


async def list_loggers(request: Request) -> Response:
    """GET /admin/loggers"""
    return JSONResponse({name: _logger_json(name) for name in _known_loggers()})


async def get_logger(request: Request) -> Response:
    """GET /admin/loggers/{logger}"""
    name = unquote(request.path_params["logger"])
    if name not in _known_loggers():
        raise NotFound(f"Logger {name} not found.")
    return JSONResponse(_logger_json(name))


async def put_logger(request: Request) -> Response:
    """PUT /admin/loggers/{logger}"""
    name, body = unquote(request.path_params["logger"]), await json_body(request)
    level = body.get("level") if isinstance(body, dict) else None
    if not isinstance(level, str):
        raise BadRequest("Desired 'level' parameter was not specified in request.")
    if level.upper() not in _LEVELS:
        raise NotFound(f"invalid log level '{level}'.")
    scope = request.query_params.get("scope", "worker").lower()
    if scope == "cluster":
        await run_in_threadpool(_worker(request).set_cluster_level, name, level.upper())
        return Response(status_code=204)
    return JSONResponse(set_level(name, level.upper()))


def set_level(name: str, level: str) -> list[str]:
    """Sets the level of a logger and of those below it; their names."""
    prefix = "" if name == "root" else f"{name}."
    changed = [one for one in _known_loggers() if one == name or (one.startswith(prefix) and one != "root")]
    if name not in changed:
        changed.append(name)
    for one in changed:
        logging.getLogger(None if one == "root" else one).setLevel(_LEVELS.get(level, logging.INFO))
        _modified[one] = time.time_ns() // 1_000_000
    return sorted(changed)


async def metrics(request: Request) -> Response:
    """GET /metrics"""
    return PlainTextResponse(_worker(request).metrics(), media_type="text/plain; version=0.0.4")


ROUTES = [
    Route("/", root, methods=["GET"]),
    Route("/health", health, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
]
ADMIN_ROUTES = [
    Route("/admin/loggers", list_loggers, methods=["GET"]),
    Route("/admin/loggers/", list_loggers, methods=["GET"]),
    Route("/admin/loggers/{logger}", get_logger, methods=["GET"]),
    Route("/admin/loggers/{logger}", put_logger, methods=["PUT"]),
]
