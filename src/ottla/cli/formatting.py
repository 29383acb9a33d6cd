"""The work behind `ottla storage format` and `info`: which directories there are, what they hold, what to write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ottla.broker.storage_format import (
    DEFAULT_CONTROLLER_LISTENER,
    format_directory,
    node_directories,
    plan_directories,
    standalone_voters,
)
from ottla.cli.feature_levels import check_dependencies, parse_levels
from ottla.cli.scram import parse_scram
from ottla.clock import SystemClock
from ottla.config.broker import BrokerConfig
from ottla.config.listeners import parse_address
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId
from ottla.log.checkpoints import read_meta_properties
from ottla.log.fs import OsFs
from ottla.metadata.bootstrap import bootstrap_records
from ottla.metadata.features import (
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    SCRAM_FROM,
    bootstrap_levels,
    metadata_version_level,
    metadata_version_name,
)
from ottla.raft.types import ReplicaKey
from ottla.raft.voters import VoterEndpoint, VoterNode, VoterSet
from ottla.wire.classes import WireMessage
from ottla.wire.uuid import uuid_from_str


@dataclass(frozen=True, slots=True)
class FormatRequest:
    """The flags of kafka-storage format."""

    config: BrokerConfig
    cluster_id: str
    add_scram: tuple[str, ...] = ()
    add_scram_file: tuple[str, ...] = ()
    ignore_formatted: bool = False
    release: str | None = None
    features: tuple[str, ...] = ()
    standalone: bool = False
    no_initial_controllers: bool = False
    initial_controllers: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What `info` prints."""

    text: str
    problems: bool


def format_node(request: FormatRequest, echo: Callable[[str], object]) -> None:
    """Format the node's new directories. Everything that may be refused is refused before the first write."""
    fs, clock, config = OsFs(), SystemClock(), request.config
    voters = _first_voters(request, clock)
    version, records = _first_records(request)
    fresh = _fresh_directories(request, fs)
    if not fresh:
        echo("All of the log directories are already formatted.")
        return
    for directory in plan_directories(config, fresh, clock.random_uuid, voters):
        echo(
            f"Formatting {directory.description} {directory.path} with {METADATA_VERSION} "
            f"{metadata_version_name(version)}."
        )
        format_directory(
            fs,
            directory,
            cluster_id=request.cluster_id,
            node_id=config.node_id,
            records=records,
            now_ms=clock.now_ms(),
        )


def _first_voters(request: FormatRequest, clock: SystemClock) -> VoterSet | None:
    config = request.config
    if sum((request.standalone, request.no_initial_controllers, request.initial_controllers is not None)) > 1:
        raise _invalid(
            "Give one of --standalone, --no-initial-controllers and --initial-controllers, not more"
        )
    if config.voters:
        if request.standalone or request.initial_controllers is not None:
            raise _invalid(
                "controller.quorum.voters makes a static quorum: remove it from the configuration (and set "
                "controller.quorum.bootstrap.servers), or leave --standalone and --initial-controllers out"
            )
        return None
    if request.initial_controllers is not None:
        return _parse_controllers(request.initial_controllers, config)
    if request.standalone:
        if not config.is_controller:
            raise _invalid("--standalone is for controllers, and process.roles does not make this node one")
        return standalone_voters(config, clock.random_uuid())
    if config.is_controller and not request.no_initial_controllers:
        raise _invalid(
            "controller.quorum.voters is not set: give one of --standalone, --initial-controllers "
            "and --no-initial-controllers"
        )
    return None


def _parse_controllers(text: str, config: BrokerConfig) -> VoterSet:
    listener = next(iter(config.controller_listener_names), DEFAULT_CONTROLLER_LISTENER)
    nodes: list[VoterNode] = []
    for entry in text.split(","):
        node_id, _, rest = entry.strip().partition("@")
        place, _, directory = rest.rpartition(":")
        address = parse_address(place)
        try:
            directory_id = uuid_from_str(directory)
        except ValueError:
            address = None
        if address is None or not address[0] or not node_id.isdecimal():
            raise _invalid(
                f"Invalid value '{entry}' for --initial-controllers: expected ID@HOST:PORT:DIRECTORY_ID"
            )
        nodes.append(
            VoterNode(ReplicaKey(BrokerId(int(node_id)), directory_id), {listener: VoterEndpoint(*address)})
        )
    if len({node.key.id for node in nodes}) != len(nodes):
        raise _invalid(f"Invalid value '{text}' for --initial-controllers: expected each node once")
    return VoterSet.of(nodes)


def _first_records(request: FormatRequest) -> tuple[int, list[WireMessage]]:
    """The metadata.version and the records of `bootstrap.checkpoint`."""
    levels = parse_levels(request.features)
    if METADATA_VERSION in levels and request.release is not None:
        raise _invalid(f"Give --release-version or --feature {METADATA_VERSION}, not both")
    version = levels.pop(METADATA_VERSION, LATEST_METADATA_VERSION)
    if request.release is not None:
        version = metadata_version_level(request.release)
    dynamic = not request.config.voters
    kraft = levels.pop(KRAFT_VERSION, None)
    if kraft is not None and bool(kraft) != dynamic:
        raise _invalid(
            f"{KRAFT_VERSION}={kraft} does not go with {'a dynamic' if dynamic else 'a static'} quorum"
        )
    check_dependencies({**bootstrap_levels(version), **levels})
    records: list[WireMessage] = [*bootstrap_records(version, levels)]
    credentials = [*request.add_scram, *_lines(request.add_scram_file)]
    if credentials:
        if version < SCRAM_FROM:
            raise _invalid(f"--add-scram needs metadata.version {metadata_version_name(SCRAM_FROM)} or newer")
        records += [parse_scram(word) for word in credentials]
    return version, records


def _lines(paths: Iterable[str]) -> Iterator[str]:
    """The lines of files that are not empty."""
    for path in paths:
        try:
            text = Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise _invalid(f"--add-scram-file {path} cannot be read: {reason}") from None
        yield from filter(None, map(str.strip, text.splitlines()))


def _fresh_directories(request: FormatRequest, fs: OsFs) -> list[str]:
    """The directories without `meta.properties`; those with one must be of this node and cluster."""
    fresh: list[str] = []
    for path in node_directories(request.config):
        found = read_meta_properties(fs, path)
        if found is None:
            fresh.append(path)
            continue
        for key, own in (("cluster.id", request.cluster_id), ("node.id", str(request.config.node_id))):
            if found.get(key) != own:
                raise _invalid(
                    f"{path}/meta.properties is of another {key}: expected {own}, found {found.get(key)}"
                )
        if not request.ignore_formatted:
            raise _invalid(
                f"Log directory {path} is already formatted. Use --ignore-formatted to ignore this directory and "
                "format the others."
            )
    return fresh


def describe_directories(config: BrokerConfig) -> Report:
    """What `kafka-storage info` prints."""
    fs = OsFs()
    problems: list[str] = []
    directories: list[str] = []
    formatted: list[dict[str, str]] = []
    for path in node_directories(config):
        if not os.path.isdir(path):
            problems.append(f"{path} {'is not a directory' if fs.exists(path) else 'does not exist'}")
            continue
        directories.append(path)
        found = read_meta_properties(fs, path)
        if found is None:
            problems.append(f"{path} is not formatted.")
        else:
            formatted.append(found)
    for key in ("cluster.id", "node.id"):
        if len({found.get(key) for found in formatted}) > 1:
            problems.append(f"The directories have different values of {key}.")
    sections: list[str] = []
    if directories:
        title = "Found log directory:" if len(directories) == 1 else "Found log directories:"
        sections.append(f"{title}\n" + "".join(f"  {path}\n" for path in directories))
    if formatted:
        shown = ", ".join(f"{key}={value}" for key, value in sorted(formatted[0].items()))
        sections.append(f"Found metadata: {{{shown}}}\n")
    if problems:
        sections.append("Found problems:\n" + "".join(f"  {problem}\n" for problem in problems))
    return Report("\n".join(sections), bool(problems))


def _invalid(message: str) -> ApiException:
    return ApiException(ErrorCode.INVALID_CONFIG, message)
