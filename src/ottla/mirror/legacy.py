"""`bin/kafka-mirror-maker.sh`: MirrorMaker 1's command line as a flow that keeps the names of topics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from ottla.connect.properties import parse
from ottla.mirror.cli import run_mirror
from ottla.mirror.config import mirror_config
from ottla.mirror.failures import MirrorError
from ottla.mirror.sentences import failures_as_lines

_ADVICE: Final = (
    "MirrorMaker 1 ended with Kafka 3. This runs the same mirror as a flow source->target; write it as a file for "
    "`ottla mirror run` to get groups and settings mirrored, too"
)


def legacy_keys(
    consumer: Mapping[str, str], producer: Mapping[str, str], include: str, streams: int
) -> dict[str, str]:
    """The keys of the flow: records only, names as they are, from where the consumer's settings say."""
    for side, given in (("consumer", consumer), ("producer", producer)):
        if not given.get("bootstrap.servers"):
            raise MirrorError(f"the file of --{side}.config has no bootstrap.servers")
    off = (
        *(
            "emit.heartbeats",
            "emit.checkpoints",
            "sync.group.offsets",
            "sync.topic.configs",
            "sync.topic.acls",
        ),
        *("emit.offset-syncs", "heartbeats.replication"),
    )
    keys = {
        "clusters": "source, target",
        "source->target.enabled": "true",
        "replication.policy.class": "IdentityReplicationPolicy",
        "topics": include,
        "tasks.max": str(streams),
        "source.consumer.auto.offset.reset": consumer.get("auto.offset.reset", "latest"),
        **{f"{one}.enabled": "false" for one in off},
    }
    for alias, given in (("source", consumer), ("target", producer)):
        wanted = ("bootstrap.servers", "security.", "ssl.", "sasl.")
        keys |= {f"{alias}.{key}": value for key, value in given.items() if key.startswith(wanted)}
    return keys


@click.command("kafka-mirror-maker")
@click.option("--consumer.config", "consumer", required=True, help="How to reach the source.")
@click.option("--producer.config", "producer", required=True, help="How to reach the target.")
@click.option(
    "--whitelist", "--include", "include", required=True, help="The topics, as a regular expression."
)
@click.option("--num.streams", "streams", default=1, show_default=True, type=click.IntRange(1, 256))
@click.option("--once", is_flag=True, help="Copy what is there, and end.")
@click.option("--new.consumer", "new_consumer", is_flag=True, help="Without effect.")
@click.option("--offset.commit.interval.ms", "commit_ms", type=int, help="Without effect.")
@click.option("--abort.on.send.failure", "abort", type=click.BOOL, help="Without effect: nothing is lost.")
@click.option("--message.handler", "handler", help="Refused: records are copied as they are.")
@click.option("--message.handler.args", "handler_args", help="Refused, too.")
@click.option("--rebalance.listener", "listener", help="Refused: a Java class.")
@click.option("--rebalance.listener.args", "listener_args", help="Refused, too.")
def kafka_mirror_maker(
    consumer: str, producer: str, include: str, streams: int, once: bool, **more: object
) -> None:
    """Copy topics from one cluster to another under their own names."""
    click.echo(f"kafka-mirror-maker: {_ADVICE}", err=True)
    with failures_as_lines():
        for option in ("handler", "handler_args", "listener", "listener_args"):
            if more[option] is not None:
                raise MirrorError(
                    f"{more[option]} is for a Java class: a mirror copies records as they are, without a handler"
                )
        files = [_read(one) for one in (consumer, producer)]
        config = mirror_config(legacy_keys(files[0], files[1], include, streams))
        run_mirror(config, targets=None, once=once, master=None)


def _read(path: str) -> dict[str, str]:
    try:
        return parse(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise MirrorError(f"{path} cannot be read: {reason}") from None
