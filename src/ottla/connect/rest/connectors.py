"""The paths under /connectors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ottla.connect.failures import BadRequest, NotFound
from ottla.connect.herder import Forbidden
from ottla.connect.offsets import parse_offsets
from ottla.connect.rest.errors import text_map
from ottla.connect.rest.forward import forwarding
from ottla.connect.state import PAUSED, STARTED, STOPPED, ConnectorStatus
from ottla.json_types import Json, JsonObject

if TYPE_CHECKING:
    from ottla.connect.worker import Worker


def _worker(request: Request) -> Worker:
    worker: Worker = request.app.state.worker
    return worker


def _name(request: Request) -> str:
    return unquote(str(request.path_params["connector"]))


async def list_connectors(request: Request) -> Response:
    """GET /connectors"""
    herder = _worker(request).herder
    expansions = request.query_params.getlist("expand")
    if not expansions:
        return JSONResponse(herder.connectors())
    shown: dict[str, dict[str, JsonObject | ConnectorStatus]] = {}
    for name in herder.connectors():
        found: dict[str, JsonObject | ConnectorStatus] = {}
        try:
            if "status" in expansions:
                found["status"] = herder.status(name)
            if "info" in expansions:
                found["info"] = herder.info(name)
        except NotFound:
            continue
        shown[name] = found
    return JSONResponse(shown)


@forwarding
async def create(request: Request, body: Json) -> Response:
    """POST /connectors"""
    if not isinstance(body, dict):
        raise BadRequest("a connector is a JSON object with 'name' and 'config'")
    unknown = set(body) - {"name", "config", "initial_state"}
    if unknown:
        raise BadRequest(
            f"a connector has no field {sorted(unknown)[0]}: it has name, config and initial_state"
        )
    name = str(body.get("name") or "").strip()
    config = _named(name, text_map(body.get("config") or {}))
    state = body.get("initial_state")
    _, info = await run_in_threadpool(
        _worker(request).put_connector, name, config, replace=False, initial_state=state
    )
    return JSONResponse(info, 201, {"Location": f"/connectors/{quote(name, safe='')}"})


def _named(name: str, config: dict[str, str | None]) -> dict[str, str | None]:
    included = config.get("name")
    if included is not None and included != name:
        raise BadRequest(
            f"Connector name configuration ({included}) doesn't match connector name in the URL ({name})"
        )
    return {**config, "name": name}


async def info(request: Request) -> Response:
    """GET /connectors/{connector}"""
    return JSONResponse(_worker(request).herder.info(_name(request)))


async def config(request: Request) -> Response:
    """GET /connectors/{connector}/config"""
    return JSONResponse(_worker(request).herder.known(_name(request)))


@forwarding
async def put_config(request: Request, body: Json) -> Response:
    """PUT /connectors/{connector}/config"""
    name = _name(request)
    created, shown = await run_in_threadpool(
        _worker(request).put_connector, name, _named(name, text_map(body)), replace=True
    )
    location = {"Location": f"/connectors/{quote(name, safe='')}"} if created else None
    return JSONResponse(shown, 201 if created else 200, location)


@forwarding
async def patch_config(request: Request, body: Json) -> Response:
    """PATCH /connectors/{connector}/config"""
    shown = await run_in_threadpool(_worker(request).patch_connector, _name(request), text_map(body))
    return JSONResponse(shown)


@forwarding
async def delete(request: Request, body: Json) -> Response:
    """DELETE /connectors/{connector}"""
    await run_in_threadpool(_worker(request).herder.delete, _name(request))
    return Response(status_code=204)


async def status(request: Request) -> Response:
    """GET /connectors/{connector}/status"""
    return JSONResponse(_worker(request).herder.status(_name(request)))


async def tasks(request: Request) -> Response:
    """GET /connectors/{connector}/tasks"""
    return JSONResponse(_worker(request).herder.tasks(_name(request)))


async def task_status(request: Request) -> Response:
    """GET /connectors/{connector}/tasks/{task}/status"""
    task = int(request.path_params["task"])
    return JSONResponse(_worker(request).herder.task_status(_name(request), task))


@forwarding
async def restart(request: Request, body: Json) -> Response:
    """POST /connectors/{connector}/restart"""
    herder = _worker(request).herder
    include_tasks = request.query_params.get("includeTasks", "false").lower() == "true"
    only_failed = request.query_params.get("onlyFailed", "false").lower() == "true"
    if not include_tasks and not only_failed:
        await run_in_threadpool(herder.restart, _name(request))
        return Response(status_code=204)
    shown = await run_in_threadpool(
        herder.restart_plan, _name(request), include_tasks=include_tasks, only_failed=only_failed
    )
    return JSONResponse(shown, 202)


@forwarding
async def restart_task(request: Request, body: Json) -> Response:
    """POST /connectors/{connector}/tasks/{task}/restart"""
    task = int(request.path_params["task"])
    await run_in_threadpool(_worker(request).herder.restart_task, _name(request), task)
    return Response(status_code=204)


def _target(state: str, answer: int) -> Callable[[Request], Awaitable[Response]]:
    @forwarding
    async def put(request: Request, body: Json) -> Response:
        await run_in_threadpool(_worker(request).herder.set_target, _name(request), state)
        return Response(status_code=answer)

    return put


async def get_offsets(request: Request) -> Response:
    """GET /connectors/{connector}/offsets"""
    return JSONResponse(await run_in_threadpool(_worker(request).offsets, _name(request)))


@forwarding
async def patch_offsets(request: Request, body: Json) -> Response:
    """PATCH /connectors/{connector}/offsets"""
    pairs = parse_offsets(body)
    return JSONResponse(await run_in_threadpool(_worker(request).alter_offsets, _name(request), pairs))


@forwarding
async def delete_offsets(request: Request, body: Json) -> Response:
    """DELETE /connectors/{connector}/offsets"""
    return JSONResponse(await run_in_threadpool(_worker(request).reset_offsets, _name(request)))


async def topics(request: Request) -> Response:
    """GET /connectors/{connector}/topics"""
    return JSONResponse(_worker(request).herder.topics(_name(request)))


async def reset_topics(request: Request) -> Response:
    """PUT /connectors/{connector}/topics/reset"""
    await run_in_threadpool(_worker(request).herder.reset_topics, _name(request))
    return Response(status_code=202)


async def between_workers(request: Request) -> Response:
    """POST /connectors/{connector}/tasks and PUT /connectors/{connector}/fence"""
    raise Forbidden("Workers of Ottla do not use this path: it is for Java workers among each other")


@forwarding
async def progress(request: Request, _: Json) -> Response:
    """GET /ottla/connectors/{connector}, from the worker that runs it."""
    return JSONResponse(_worker(request).progress(_name(request)))


_ONE = "/connectors/{connector}"
ROUTES = [
    Route("/connectors", list_connectors, methods=["GET"]),
    Route("/connectors", create, methods=["POST"]),
    Route("/connectors/", list_connectors, methods=["GET"]),
    Route("/connectors/", create, methods=["POST"]),
    Route(_ONE, info, methods=["GET"]),
    Route(_ONE, delete, methods=["DELETE"]),
    Route(f"{_ONE}/config", config, methods=["GET"]),
    Route(f"{_ONE}/config", put_config, methods=["PUT"]),
    Route(f"{_ONE}/config", patch_config, methods=["PATCH"]),
    Route(f"{_ONE}/status", status, methods=["GET"]),
    Route(f"{_ONE}/restart", restart, methods=["POST"]),
    Route(f"{_ONE}/pause", _target(PAUSED, 202), methods=["PUT"]),
    Route(f"{_ONE}/resume", _target(STARTED, 202), methods=["PUT"]),
    Route(f"{_ONE}/stop", _target(STOPPED, 204), methods=["PUT"]),
    Route(f"{_ONE}/tasks", tasks, methods=["GET"]),
    Route(f"{_ONE}/tasks", between_workers, methods=["POST"]),
    Route(f"{_ONE}/fence", between_workers, methods=["PUT"]),
    Route(f"{_ONE}/tasks/{{task:int}}/status", task_status, methods=["GET"]),
    Route(f"{_ONE}/tasks/{{task:int}}/restart", restart_task, methods=["POST"]),
    Route(f"{_ONE}/offsets", get_offsets, methods=["GET"]),
    Route(f"{_ONE}/offsets", patch_offsets, methods=["PATCH"]),
    Route(f"{_ONE}/offsets", delete_offsets, methods=["DELETE"]),
    Route(f"{_ONE}/topics", topics, methods=["GET"]),
    Route(f"{_ONE}/topics/reset", reset_topics, methods=["PUT"]),
    Route("/ottla/connectors/{connector}", progress, methods=["GET"]),
]
