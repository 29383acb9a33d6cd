"""The JSON interface as an OpenAPI document, so that clients of any language can be made from it.

A test holds the schemas to real answers, and the list of paths to the routes.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.responses import JSONResponse, Response

from ottla import __version__
from ottla.console.web import PAGES, View, answer
from ottla.json_types import JsonObject

Schema = JsonObject

_TEXT: Final[Schema] = {"type": "string"}
_WHOLE: Final[Schema] = {"type": "integer", "format": "int64"}
_NUMBER: Final[Schema] = {"type": "number"}
_YES_NO: Final[Schema] = {"type": "boolean"}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(**fields: Schema) -> Schema:
    return {"type": "object", "properties": fields, "required": list(fields)}


def _named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_TOPIC_FIELDS: Final = {
    "name": _TEXT,
    "id": _TEXT,
    "internal": _YES_NO,
    "partitions": _WHOLE,
    "replication": _WHOLE,
    "records": _WHOLE,
    "bytes": _WHOLE,
    "recordsPerSecond": _NUMBER,
    "lag": _or_null(_WHOLE),
    "withoutLeader": _list(_WHOLE),
    "underReplicated": _list(_WHOLE),
}
_SAMPLE: Final = {"sample": _WHOLE, "taken": _NUMBER}
SCHEMAS: Final[dict[str, Schema]] = {
    "Topic": _object(**_TOPIC_FIELDS),
    "Partition": _object(
        leader=_WHOLE, replicas=_list(_WHOLE), isr=_list(_WHOLE), start=_WHOLE, end=_WHOLE, bytes=_WHOLE
    ),
    "Finding": _object(severity=_TEXT, rule=_TEXT, sentence=_TEXT, evidence=_TEXT, next_step=_TEXT),
    "Group": _object(
        id=_TEXT,
        kind=_TEXT,
        state=_TEXT,
        members=_WHOLE,
        lag=_WHOLE,
        lagSeconds=_or_null(_NUMBER),
        recordsPerSecond=_NUMBER,
        findings=_list(_named("Finding")),
    ),
    "Record": _object(
        partition=_WHOLE,
        offset=_WHOLE,
        timestamp=_WHOLE,
        key=_or_null(_TEXT),
        value=_or_null(_TEXT),
        headers=_list(_list(_TEXT)),
    ),
    "Node": _object(
        node_id=_WHOLE, host=_TEXT, port=_WHOLE, rack=_or_null(_TEXT), fenced=_YES_NO, answers=_YES_NO
    ),
    "Topics": _object(**_SAMPLE, count=_WHOLE, topics=_list(_named("Topic"))),
    "TopicWithPartitions": _object(**_SAMPLE, **_TOPIC_FIELDS, partitionStates=_list(_named("Partition"))),
    "Records": _object(records=_list(_named("Record")), cursor=_or_null(_TEXT)),
    "Groups": _object(**_SAMPLE, count=_WHOLE, groups=_list(_named("Group"))),
    "Nodes": _object(
        **_SAMPLE,
        clusterId=_TEXT,
        controller=_WHOLE,
        nodes=_list(_named("Node")),
        quorum=_or_null({"type": "object"}),
    ),
    "Findings": _object(**_SAMPLE, findings=_list(_named("Finding"))),
    "Error": _object(error=_TEXT),
}
_FIND: Final = {
    "q": "letters of the name",
    "show": "internal, compacted, idle or trouble",
    "sort": "name, partitions, rate, records, size or lag",
    "order": "asc or desc",
    "from": "the first row",
}
_READ: Final = {
    "at": "newest, oldest, time or offset",
    "since": "10m, 2h or 2026-01-31T12:00:00, for at=time",
    "offset": "for at=offset",
    "partition": "numbers, separated by commas",
    "rows": "at most 500",
    "q": "a text in key or value",
    "filter": "a condition like value.total > 100",
    "isolation": "all shows open and aborted transactions",
    "cursor": "where the last answer ended",
}
_ANSWERS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "/api/topics": ("Topics", _FIND),
    "/api/topics/{topic}": ("TopicWithPartitions", {}),
    "/api/topics/{topic}/records": ("Records", _READ),
    "/api/groups": ("Groups", {}),
    "/api/nodes": ("Nodes", {}),
    "/api/findings": ("Findings", {}),
}
_OWN: Final = "/api/openapi.json"


def _operation(path: str, verb: str, summary: str) -> Schema:
    name, query = _ANSWERS[path]
    parts = ["cluster", *re.findall(r"\{(\w+)\}", path)]
    parameters = [{"name": each, "in": "path", "required": True, "schema": _TEXT} for each in parts]
    parameters += [
        {"name": each, "in": "query", "required": False, "schema": _TEXT, "description": text}
        for each, text in query.items()
    ]
    problem = {"content": {"application/json": {"schema": _named("Error")}}}
    return {
        "summary": summary,
        "description": f"Needs the verb `{verb}`.",
        "operationId": f"get{name}",
        "parameters": parameters,
        "responses": {
            "200": {"description": "Found.", "content": {"application/json": {"schema": _named(name)}}},
            "304": {"description": "Nothing is new since the ETag of If-None-Match."},
            "401": {"description": "Nobody is signed in.", **problem},
            "403": {"description": "A role is missing.", **problem},
            "404": {"description": "There is no such thing.", **problem},
        },
    }


def document() -> Schema:
    """The whole document."""
    paths = {}
    for each in PAGES:
        if each.path.startswith("/api/") and each.path != _OWN:
            summary = (each.handler.__doc__ or "").partition("\n")[0]
            address = f"/api/v1/c/{{cluster}}{each.path.removeprefix('/api')}"
            paths[address] = {"get": _operation(each.path, each.verb, summary)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ottla console", "version": __version__},
        "paths": paths,
        "components": {"schemas": SCHEMAS},
    }


@answer(_OWN)
async def openapi(view: View) -> Response:
    """This interface as an OpenAPI document."""
    return JSONResponse(document())
