"""`ottla features`: what kafka-features does."""

from __future__ import annotations

from typing import Final

import click

from ottla.admin.errors import describe_error
from ottla.admin.quorum import update_features
from ottla.cli.tools.base import Flags, Session, tool
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.values import parse_int
from ottla.errors import ErrorCode
from ottla.wire.enums import UpgradeType
from ottla.wire.messages import UpdateFeaturesResponse

_ACTIONS: Final = (
    *("describe", "upgrade", "downgrade", "disable"),
    *("version-mapping", "feature-dependencies"),
)


class FeaturesFlags(Flags):
    """The flags of `ottla features`."""

    action: str
    node_id: int | None
    feature: tuple[str, ...]
    release_version: str | None
    metadata: str | None
    unsafe: bool
    dry_run: bool


@tool(
    "features",
    click.argument("action", type=click.Choice(_ACTIONS)),
    click.option("--node-id", type=int, metavar="ID", help="describe: ask this node."),
    click.option(
        "--feature", multiple=True, metavar="FEATURE=LEVEL", help="May be repeated; disable: the name."
    ),
    click.option("--release-version", metavar="RELEASE", help="All features as of a release, as in 4.3."),
    click.option("--metadata", metavar="RELEASE", help="metadata.version as of a release."),
    click.option("--unsafe", is_flag=True, help="Even if metadata is lost by it."),
    click.option("--dry-run", is_flag=True, help="Only check whether it could be done."),
    controllers=True,
)
def features(session: Session, flags: FeaturesFlags) -> None:
    """Show and change the cluster's feature levels."""
    if flags.action == "describe":
        _describe(session, flags)
    elif flags.action == "version-mapping":
        _version_mapping(session, flags)
    elif flags.action == "feature-dependencies":
        _dependencies(session, flags)
    else:
        _update(session, flags)


def _describe(session: Session, flags: FeaturesFlags) -> None:
    if flags.node_id is not None and flags.node_id < 0:
        raise UsageProblem(f"--node-id {flags.node_id}: there are no negative ids")
    response = session.cluster.connection(flags.node_id).features
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    epoch = response.finalized_features_epoch if response.finalized_features_epoch >= 0 else "-"
    documents: list[object] = []
    lines: list[str] = []
    for each in sorted(response.supported_features, key=lambda each: str(each.name)):
        levels = [
            _level_text(each.name, level)
            for level in (each.min_version, each.max_version, finalized.get(each.name, 0))
        ]
        lines.append(
            f"Feature: {each.name:<40}  SupportedMinVersion: {levels[0]:<15}  SupportedMaxVersion: {levels[1]:<15}"
            f"  FinalizedVersionLevel: {levels[2]:<15}  Epoch: {epoch}"
        )
        names = ("supportedMinVersion", "supportedMaxVersion", "finalizedVersionLevel")
        documents.append({"feature": each.name, **dict(zip(names, levels, strict=True)), "epoch": epoch})
    session.result(documents, lines)


def _level_text(feature: str, level: int) -> str:
    from ottla.metadata.features import METADATA_VERSION, metadata_version_name

    if feature != METADATA_VERSION:
        return str(level)
    try:
        return metadata_version_name(level)
    except (KeyError, ValueError):
        return f"UNKNOWN {level}"


def _version_mapping(session: Session, flags: FeaturesFlags) -> None:
    from ottla.cli.feature_levels import release_levels
    from ottla.metadata import features as known

    release = flags.release_version
    level = known.LATEST_METADATA_VERSION if release is None else known.metadata_version_level(release)
    shown = known.metadata_version_name(level) if release is None else release
    levels = release_levels(level)
    lines = [
        f"{known.METADATA_VERSION}={level} ({shown})",
        *(f"{name}={each}" for name, each in levels.items()),
    ]
    session.result({known.METADATA_VERSION: level, **levels}, lines)


def _dependencies(session: Session, flags: FeaturesFlags) -> None:
    from ottla.cli.feature_levels import dependencies_text, parse_level

    if not flags.feature:
        raise click.UsageError("--feature is required here")
    texts = {word: dependencies_text(*parse_level(word)) for word in flags.feature}
    session.result(texts, texts.values())


def _update(session: Session, flags: FeaturesFlags) -> None:
    operation = flags.action
    wanted = _wanted_levels(flags)
    if not wanted:
        raise UsageProblem(f"name at least one feature to {operation}")
    upgrade = UpgradeType.UNSAFE_DOWNGRADE if flags.unsafe else UpgradeType.SAFE_DOWNGRADE
    if operation == "upgrade":
        upgrade = UpgradeType.UPGRADE
    levels = {name: (upgrade, level) for name, level in wanted.items()}
    problems = _problems(update_features(session.cluster, levels, validate_only=flags.dry_run), wanted)
    for name, level in sorted(wanted.items()):
        target = "" if operation == "disable" else f" to {level}"
        if name in problems:
            helper = "Can not" if flags.dry_run else "Could not"
            session.print(f"{helper} {operation} {name}{target}. {problems[name]}")
        else:
            session.print(f"{name} {'can be' if flags.dry_run else 'was'} {operation}d{target}.")
    if session.as_json:
        session.dump(
            [{"feature": name, "level": wanted[name], "error": problems.get(name)} for name in wanted]
        )
    if problems:
        session.error(f"{len(problems)} out of {len(wanted)} operation(s) failed.")


def _wanted_levels(flags: FeaturesFlags) -> dict[str, int]:
    from ottla.cli.feature_levels import release_levels
    from ottla.metadata import features as known

    if flags.action == "disable":
        return dict.fromkeys(flags.feature, 0)
    if flags.release_version is not None:
        if flags.metadata is not None or flags.feature:
            raise UsageProblem("--release-version can't be used with other features")
        level = known.metadata_version_level(flags.release_version)
        others = release_levels(level)
        kept = {name: each for name, each in others.items() if each > 0 or flags.action != "upgrade"}
        return {known.METADATA_VERSION: level, **kept}
    wanted: dict[str, int] = {}
    if flags.metadata is not None:
        wanted[known.METADATA_VERSION] = known.metadata_version_level(flags.metadata)
    for word in flags.feature:
        name, equals, level_text = (part.strip() for part in word.partition("="))
        if not equals:
            raise UsageProblem(f"--feature {word}: expected FEATURE=LEVEL")
        if name in wanted:
            raise UsageProblem(f"--feature: {name} is named twice")
        wanted[name] = parse_int("--feature", level_text)
    return wanted


def _problems(answer: UpdateFeaturesResponse, wanted: dict[str, int]) -> dict[str, str]:
    """The errors by feature; newer brokers return one error for all of them."""
    if answer.error_code != ErrorCode.NONE:
        return dict.fromkeys(wanted, describe_error(answer.error_code, answer.error_message))
    return {
        each.feature: describe_error(each.error_code, each.error_message)
        for each in answer.results
        if each.error_code != ErrorCode.NONE
    }
