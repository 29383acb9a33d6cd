"""A registry that is not Ottla's in the same fleet: both follow one election, and writes reach whichever leads."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from integration.registry_client import Http
from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.admin.settings import ClusterSettings
from ottla.errors import ApiException, ErrorCode
from ottla.testing.registry import RegistryProcess
from ottla.wire.enums import CoordinatorType
from ottla.wire.messages import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

pytest.importorskip("uvicorn")
GROUP = "mixed"


class Stranger:
    """A member of the election as Karapace is one: its identity and its assignments have Karapace's fields."""

    def __init__(self, bootstrap: str, port: int) -> None:
        host, _, broker_port = bootstrap.rpartition(":")
        self._cluster = Cluster(ClusterSettings(bootstrap=((host, int(broker_port)),)))
        self.member = ""
        self.identity = {
            "version": 2,
            "karapace_version": "4.0.0",
            "host": "127.0.0.1",
            "port": port,
            "scheme": "http",
            "master_eligibility": True,
        }

    def _ask(self, request):
        return self._cluster.ask_on(
            self._cluster.coordinator_connection(GROUP, CoordinatorType.GROUP), request
        )

    def join(self):
        """Join, or join again. The identities of all members if this one assigns, and the assignment that it gets."""
        metadata = json.dumps(self.identity).encode()
        joined = self._ask(
            JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                member_id=self.member,
                protocol_type="sr",
                protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="v0", metadata=metadata)],
            )
        )
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member = joined.member_id
            return self.join()
        raise_for(joined.error_code, None, "joining")
        self.member = joined.member_id
        members = {one.member_id: json.loads(one.metadata) for one in joined.members}
        assignment = {"master": self.member, "master_identity": self.identity, "error": 0}
        kind = SyncGroupRequest.SyncGroupRequestAssignment
        synced = self._ask(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=joined.generation_id,
                member_id=self.member,
                protocol_type="sr",
                protocol_name="v0",
                assignments=[
                    kind(member_id=member, assignment=json.dumps(assignment).encode()) for member in members
                ],
            )
        )
        raise_for(synced.error_code, None, "the assignment")
        return members, json.loads(bytes(synced.assignment))

    def join_with_another(self):
        """Join until another member is there too."""
        while True:
            try:
                members, assignment = self.join()
            except ApiException as error:
                assert error.code == ErrorCode.REBALANCE_IN_PROGRESS, error
                continue
            if len(members) > 1:
                return members, assignment

    def leave(self) -> None:
        member = LeaveGroupRequest.MemberIdentity(member_id=self.member)
        self._ask(LeaveGroupRequest(group_id=GROUP, members=[member]))
        self._cluster.close()


@contextmanager
def answering():
    """A server that keeps what is sent to it, and answers with an id."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append((self.path, self.headers["X-Forward"], body))
            answer = b'{"id":4711}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1], requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_mixed_fleet_has_one_leader(shared_ottla_broker):
    arguments = ("--topic", "_mixed", "--group", GROUP, "--session-timeout-ms", "6000")
    with answering() as (port, requests):
        stranger = Stranger(shared_ottla_broker.bootstrap, port)
        with RegistryProcess(shared_ottla_broker.bootstrap, *arguments) as ours:
            http = Http(ours.url)
            assert http.register("first", '"int"')[1]["id"] == 1
            members, assignment = stranger.join()
            # The first member assigns. It stays leader, and says so in the fields that the others read.
            assert members == {} and assignment["error"] == 0 and assignment["master"] != stranger.member
            leader = assignment["master_identity"]
            assert f"{leader['scheme']}://{leader['host']}:{leader['port']}" == ours.url
            assert leader["master_eligibility"] is True
            assert http.register("second", '"long"')[1]["id"] == 2
        # Ottla's registry has left: the stranger is alone, assigns itself, and keeps that when another one joins.
        stranger.join()
        with RegistryProcess(shared_ottla_broker.bootstrap, *arguments) as follower:
            members, assignment = stranger.join_with_another()
            assert assignment["master"] == stranger.member
            assert {one["master_eligibility"] for one in members.values()} == {True}
            http = Http(follower.url)
            assert http.register("third", '"string"') == (200, {"id": 4711})
            assert requests == [("/subjects/third/versions", "true", {"schema": '"string"'})]
            assert http.get("/subjects") == ["first", "second"]
            stranger.leave()
            # The member that is left learns of it with its next heartbeat, and leads.
            while (answer := http.register("third", '"string"'))[1].get("id") == 4711:
                continue
            assert answer[1]["id"] == 3
