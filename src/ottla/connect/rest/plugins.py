"""The paths under /connector-plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ottla.connect.config.definitions import ConfigDef, kafka_keys
from ottla.connect.failures import BadRequest, NotFound
from ottla.connect.rest.errors import json_body, text_map
from ottla.json_types import JsonObject

if TYPE_CHECKING:
    from ottla.connect.worker import Worker


def _worker(request: Request) -> Worker:
    worker: Worker = request.app.state.worker
    return worker


async def list_plugins(request: Request) -> Response:
    """GET /connector-plugins"""
    only_connectors = request.query_params.get("connectorsOnly", "true").lower() != "false"
    kinds = ("source", "sink") if only_connectors else ()
    shown = []
    for one in _worker(request).plugins.specs(*kinds):
        row: JsonObject = {"class": one.name, "type": one.kind}
        if one.version is not None:
            row["version"] = one.version
        shown.append(row)
    return JSONResponse(sorted(shown, key=lambda row: str(row["class"])))


async def plugin_config(request: Request) -> Response:
    """GET /connector-plugins/{plugin}/config"""
    name = unquote(request.path_params["plugin"])
    try:
        spec = _worker(request).plugins.find(name)
    except NotFound:
        raise NotFound(f"Unknown plugin {name}.") from None
    definition: ConfigDef
    if spec.kind in ("converter", "header_converter"):
        definition = kafka_keys(spec.name.removeprefix("org.apache.kafka.connect."))
    else:
        definition = spec.load().config_def()
    return JSONResponse([key.json() for key in definition.keys.values()])


async def validate(request: Request) -> Response:
    """PUT /connector-plugins/{plugin}/config/validate"""
    name, config = unquote(request.path_params["plugin"]), text_map(await json_body(request))
    included = config.get("connector.class")
    plugins = _worker(request).plugins
    if included is not None:
        same = any(one.matches(name) and one.matches(included) for one in plugins.specs("source", "sink"))
        if not same and included.rpartition(".")[2] != name.rpartition(".")[2]:
            raise BadRequest(
                f"Included connector type {included} does not match request type {name.rpartition('.')[2]}"
            )
    else:
        config["connector.class"] = name
    found = await run_in_threadpool(_worker(request).herder.validate, config)
    return JSONResponse(found.json())


ROUTES = [
    Route("/connector-plugins", list_plugins, methods=["GET"]),
    Route("/connector-plugins/", list_plugins, methods=["GET"]),
    Route("/connector-plugins/{plugin}/config", plugin_config, methods=["GET"]),
    Route("/connector-plugins/{plugin}/config/validate", validate, methods=["PUT"]),
]
