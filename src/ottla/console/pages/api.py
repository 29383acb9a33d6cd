"""The same as JSON: topics, groups, nodes, the quorum and findings, from the sampler; records by the reader.

Every answer carries the number of the sample as its ETag, so that a client asks for what is new only.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response

from ottla.console.findings import cluster_findings
from ottla.console.pages import topics as topics_page
from ottla.console.pages.records import find, row
from ottla.console.reader import records as reading
from ottla.console.security.audit import reading as reading_of
from ottla.console.security.roles import READ, SEE
from ottla.console.web import View, answer
from ottla.json_types import JsonObject

if TYPE_CHECKING:
    from ottla.console.sampler.state import GroupState, TopicState


def _sampled(view: View, document: JsonObject) -> Response:
    tag = f'"{view.state.round}"'
    if view.request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"etag": tag})
    return JSONResponse(
        {"sample": view.state.round, "taken": view.state.taken_s, **document}, headers={"etag": tag}
    )


def _topic(view: View, topic: TopicState) -> JsonObject:
    return {
        "name": topic.name,
        "id": topic.topic_id,
        "internal": topic.internal,
        "partitions": topic.partitions,
        "replication": topic.replication,
        "records": topic.records,
        "bytes": topic.size,
        "recordsPerSecond": round(topic.rate, 2),
        "lag": view.state.lag_of(topic.name),
        "withoutLeader": topic.headless,
        "underReplicated": topic.lacking,
    }


def _group(group: GroupState) -> JsonObject:
    return {
        "id": group.group_id,
        "kind": group.kind.lower(),
        "state": group.state,
        "members": group.members,
        "lag": group.lag,
        "lagSeconds": group.lag_s,
        "recordsPerSecond": round(group.rate, 2),
        "findings": [asdict(each) for each in group.findings],
    }


@answer("/api/topics")
async def topics(view: View) -> Response:
    """A page of topics; `q`, `show`, `sort`, `order` and `from` are as on the page."""
    rows, count = topics_page.find(view)
    return _sampled(view, {"count": count, "topics": [_topic(view, each) for each in rows]})


@answer("/api/topics/{topic}", resource="topic:{topic}")
async def topic(view: View) -> Response:
    """A topic with its partitions."""
    found = view.topic()
    columns = zip(
        found.leaders, found.replicas, found.isr, found.starts, found.ends, found.sizes, strict=False
    )
    names = ("leader", "replicas", "isr", "start", "end", "bytes")
    partitions = [dict(zip(names, each, strict=True)) for each in columns]
    return _sampled(view, {**_topic(view, found), "partitionStates": partitions})


@answer("/api/topics/{topic}/records", verb=READ, resource="topic:{topic}")
async def records(view: View) -> Response:
    """Records, as on the page Records; keys and values are texts, masked as there."""
    found_topic = view.topic()
    found, wanted, _ = await find(
        view, found_topic.name, found_topic.partitions, view.number("rows", 50, 1, 500)
    )
    view.console.audit.note(
        view.principal.name,
        "read records",
        view.cluster.name,
        f"topic:{found_topic.name}",
        query=reading_of(view.request.query_params),
        records=len(found.records),
    )
    rows = [row(view.console.masks.apply(each, wanted.masks)) for each in found.records]
    return JSONResponse(
        {
            "records": [
                {
                    "partition": each.seen.partition,
                    "offset": each.seen.offset,
                    "timestamp": each.seen.timestamp,
                    "key": None if each.seen.key is None else each.key.text,
                    "value": None if each.seen.value is None else each.value.text,
                    "headers": [[name, data.text] for name, data in each.headers],
                }
                for each in rows
            ],
            "cursor": None if found.complete else reading.cursor_text(found.following),
        }
    )


@answer("/api/groups")
async def groups(view: View) -> Response:
    """All groups that the principal may see."""
    shown = [each for each in view.state.groups.values() if view.may(SEE, f"group:{each.group_id}")]
    return _sampled(view, {"count": len(shown), "groups": [_group(each) for each in shown]})


@answer("/api/nodes")
async def nodes(view: View) -> Response:
    """Brokers, and the metadata quorum."""
    quorum = view.state.quorum
    return _sampled(
        view,
        {
            "clusterId": view.state.cluster_id,
            "controller": view.state.controller,
            "nodes": [asdict(each) for each in view.state.nodes.values()],
            "quorum": None if quorum is None else asdict(quorum),
        },
    )


@answer("/api/findings")
async def findings(view: View) -> Response:
    """What is wrong with the cluster, worst first."""
    found = cluster_findings(view.state, lambda resource: view.may(SEE, resource))
    return _sampled(view, {"findings": [asdict(each) for each in found]})
