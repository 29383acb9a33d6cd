"""The TLS layer between two protocols in memory: no sockets, bytes cut and joined as the test likes."""

from __future__ import annotations

import random
from concurrent.futures import Future
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.credentials.contexts import TlsConfig, client_context, server_context
from ottla.net.handshake_turns import STEPS_PER_TURN, HandshakeTurns
from ottla.net.tls import HANDSHAKE_TIMEOUT_S, SCRATCH_BYTES, HandshakeRefused, TlsLayer
from ottla.testing.certificates import CertificateAuthority, write_pem
from ottla.testing.virtual_clock import VirtualClock

LARGE = random.Random(1).randbytes(3 << 20)


class Wire:
    """One direction's transport: what is written waits until the test delivers it."""

    def __init__(self):
        self.written = bytearray()
        self.closed = self.aborted = False
        self.reading = True
        self.high = 1 << 30
        self.layer = None

    def set_write_buffer_limits(self, high=None, low=None):
        self.high = high

    def get_write_buffer_size(self):
        return len(self.written)

    def get_extra_info(self, name, default=None):
        return default

    def write(self, data):
        self.written += data
        if len(self.written) > self.high:
            self.layer.pause_writing()

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    def abort(self):
        self.closed = self.aborted = True


class Protocol:
    """Takes what is decrypted; its buffer is small, so that records do not fit."""

    def __init__(self, size=1000):
        self.buffer = memoryview(bytearray(size))
        self.received = bytearray()
        self.paused = 0
        self.lost = self.ended = False

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return self.buffer

    def buffer_updated(self, count):
        self.received += self.buffer[:count]

    def eof_received(self):
        self.ended = True
        return False

    def pause_writing(self):
        self.paused += 1

    def resume_writing(self):
        self.paused -= 1

    def connection_lost(self, exc):
        self.lost = True


class Side:
    def __init__(
        self, context, scene, *, server, ready=lambda tls: None, hostname=None, delay=0.0, **options
    ):
        self.protocol = Protocol()
        self.failures = []
        self.wire = Wire()
        self.layer = TlsLayer(
            self.protocol,
            context,
            memoryview(bytearray(SCRATCH_BYTES)),
            scene.clock,
            server_side=server,
            server_hostname=hostname,
            call_soon=scene.calls.append,
            ready=ready,
            failed=self.failed,
            **options,
        )
        self.delay = delay
        self.wire.layer = self.layer

    def failed(self, why):
        self.failures.append(why)
        return self.delay

    def receive(self, data):
        buffer = self.layer.get_buffer(-1)
        buffer[: len(data)] = data
        self.layer.buffer_updated(len(data))


class Scene:
    """A client and a server, and the turns of their loop."""

    def __init__(self, tls, **server):
        self.clock = VirtualClock()
        self.calls = []
        client, context = tls
        self.server = Side(context, self, server=True, **server)
        self.client = Side(client, self, server=False, hostname="localhost")
        self.server.layer.connection_made(self.server.wire)
        self.client.layer.connection_made(self.client.wire)

    def run(self, cuts=(SCRATCH_BYTES,)):
        """Deliver everything, in pieces of these sizes, until nothing moves."""
        turn = 0
        moved = True
        while moved:
            moved = False
            calls, self.calls[:] = list(self.calls), []
            for call in calls:
                call()
                moved = True
            for source, target in ((self.client, self.server), (self.server, self.client)):
                if source.wire.written and target.wire.reading and not target.wire.closed:
                    size = cuts[turn % len(cuts)]
                    turn += 1
                    piece = bytes(source.wire.written[:size])
                    del source.wire.written[:size]
                    target.receive(piece)
                    if len(source.wire.written) < source.wire.high // 2:
                        source.layer.resume_writing()
                    moved = True
        return self


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    authority = CertificateAuthority.create()
    store = write_pem(authority.issue("broker"), folder / "broker.pem")
    trust = authority.write_truststore(folder / "ca.pem")
    keys = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
    }
    now = datetime.now(UTC)
    return client_context(TlsConfig.of(keys), now), server_context(TlsConfig.of(keys), now)[0]


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """A client that trusts somebody else."""
    trust = CertificateAuthority.create("other").write_truststore(tmp_path_factory.mktemp("s") / "ca.pem")
    keys = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trust)}
    return client_context(TlsConfig.of(keys), datetime.now(UTC))


@settings(max_examples=40, deadline=None)
@given(
    cuts=st.lists(st.sampled_from([1, 2, 5, 100, 1500, 16_384, 70_000]), min_size=1, max_size=4),
    pieces=st.lists(st.sampled_from([1, 10, 999, 16_383, 16_384, 50_000]), min_size=1, max_size=6),
)
def test_bytes_arrive_in_order_however_they_are_cut(tls, cuts, pieces):
    if sum(pieces) > 2_000 * max(cuts):
        cuts = [*cuts, 16_384]
    scene = Scene(tls).run(cuts)
    sent = b""
    for size in pieces:
        data = LARGE[len(sent) : len(sent) + size]
        scene.client.layer.write(data)
        sent += data
    scene.run(cuts)
    assert bytes(scene.server.protocol.received) == sent


def test_what_is_written_before_the_handshake_waits_for_it(tls):
    scene = Scene(tls)
    scene.client.layer.write(b"early")
    assert b"early" not in scene.client.wire.written
    scene.run()
    assert bytes(scene.server.protocol.received) == b"early"


def test_a_large_answer_is_encrypted_as_the_socket_drains(tls):
    scene = Scene(tls).run()
    scene.server.layer.set_write_buffer_limits(high=1 << 20)
    scene.server.layer.writelines([LARGE, b"", LARGE])
    assert len(scene.server.wire.written) < 1 << 20
    assert scene.server.protocol.paused == 1
    assert scene.server.layer.get_write_buffer_size() >= 2 * len(LARGE) - (1 << 20)
    scene.run()
    assert bytes(scene.client.protocol.received) == LARGE + LARGE
    assert scene.server.protocol.paused == 0


def test_a_paused_protocol_gets_nothing_and_then_all(tls):
    scene = Scene(tls).run()
    scene.server.layer.pause_reading()
    scene.client.layer.write(LARGE[:5_000])
    scene.server.receive(bytes(scene.client.wire.written))
    scene.client.wire.written.clear()
    assert not scene.server.protocol.received
    assert not scene.server.wire.reading
    scene.server.layer.resume_reading()
    assert bytes(scene.server.protocol.received) == LARGE[:5_000]
    assert scene.server.wire.reading


def test_closing_sends_what_waits_and_says_goodbye(tls):
    scene = Scene(tls).run()
    scene.server.layer.write(b"last words")
    scene.server.layer.close()
    assert scene.server.wire.closed
    assert not scene.server.wire.aborted
    data = bytes(scene.server.wire.written)
    scene.client.receive(data)
    assert bytes(scene.client.protocol.received) == b"last words"
    assert scene.client.protocol.ended
    assert scene.client.wire.closed
    scene.client.layer.connection_lost(None)
    assert scene.client.protocol.lost


def test_a_client_that_does_not_trust_the_broker_fails_with_the_reason(tls, stranger):
    scene = Scene((stranger, tls[1])).run()
    assert (
        scene.client.failures == ["the certificate was not accepted: unable to get local issuer certificate"]
        or "self-signed" in scene.client.failures[0]
    )
    assert scene.server.failures == ["tlsv1 alert unknown ca"]
    assert scene.server.wire.closed


@pytest.mark.parametrize(
    "bytes_in", [b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x10\x00\x12\x00\x00" + bytes(12)]
)
def test_something_else_than_tls_is_named_and_closed_after_the_delay(tls, bytes_in):
    scene = Scene(tls, delay=0.1)
    scene.server.receive(bytes_in)
    assert scene.server.failures == ["the client does not speak TLS"]
    assert not scene.server.wire.closed
    scene.clock.advance(0.2)
    assert scene.server.wire.closed


def test_a_handshake_that_stalls_is_given_up(tls):
    scene = Scene(tls)
    scene.server.receive(bytes(scene.client.wire.written[:20]))
    scene.clock.advance(HANDSHAKE_TIMEOUT_S + 1)
    assert scene.server.wire.aborted
    assert scene.server.failures == ["no handshake within 10 s"]


def test_a_handshake_of_one_byte_a_second_is_given_up_too(tls):
    scene = Scene(tls)
    hello = bytes(scene.client.wire.written)
    for at in range(int(HANDSHAKE_TIMEOUT_S) + 1):
        scene.server.receive(hello[at : at + 1])
        scene.clock.advance(1)
    assert scene.server.wire.aborted
    assert scene.server.failures == ["no handshake within 10 s"]


def test_a_client_may_be_refused_after_the_handshake(tls):
    def refuse(tls_object):
        raise HandshakeRefused("no rule applies to CN=x")

    scene = Scene(tls, ready=refuse).run()
    assert scene.server.failures == ["no rule applies to CN=x"]
    assert scene.server.wire.closed
    scene.client.layer.write(b"anyway")
    scene.run()
    assert not scene.server.protocol.received


def test_hostile_bytes_after_the_handshake_end_the_connection(tls):
    scene = Scene(tls).run()
    scene.server.receive(b"\x17\x03\x03\x00\x20" + bytes(32))
    assert scene.server.wire.aborted


def test_a_handshake_waits_for_its_turn_and_reads_nothing_meanwhile(tls):
    calls = []
    turns = HandshakeTurns(calls.append)
    for _ in range(STEPS_PER_TURN):
        assert turns.may_go_on(lambda: None)
    scene = Scene(tls, turns=turns)
    scene.client.layer.write(b"hello")
    scene.run()
    assert not scene.server.wire.reading and not scene.server.protocol.received
    while calls or scene.server.wire.reading is False:
        calls.pop(0)()
    scene.run()
    while calls:
        calls.pop(0)()
        scene.run()
    assert scene.server.protocol.received == b"hello"


def test_a_handshake_in_a_thread_reads_nothing_until_its_step_is_made(tls):
    steps = []

    def offload(work, done):
        steps.append((work, done))

    scene = Scene(tls, offload=offload, call_threadsafe=lambda call: call())
    scene.client.layer.write(b"hello")
    made = 0
    scene.run()
    while steps:
        assert not scene.server.wire.reading
        scene.server.layer.pause_reading()
        scene.server.layer.resume_reading()
        assert not scene.server.wire.reading
        work, done = steps.pop()
        future = Future()
        future.set_result(work())
        done(future)
        made += 1
        scene.run()
    assert made >= 2
    assert scene.server.protocol.received == b"hello"


def test_a_connection_that_is_lost_during_a_step_stays_lost(tls):
    steps = []
    scene = Scene(tls, offload=lambda work, done: steps.append((work, done)), call_threadsafe=lambda c: c())
    scene.run()
    scene.server.layer.connection_lost(None)
    work, done = steps.pop()
    future = Future()
    future.set_result(work())
    done(future)
    assert scene.server.protocol.lost and not scene.server.failures
