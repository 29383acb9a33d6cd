"""Python's loggers as Kafka's BROKER_LOGGER resource: lists and changes their levels, under Kafka's names."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla.errors import ApiException, ErrorCode
from ottla.wire.enums import AlterConfigOp

if TYPE_CHECKING:
    from ottla.wire.messages import IncrementalAlterConfigsRequest

ROOT: Final = "root"

TRACE: Final = 5
LEVELS: Final = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's levels, the most verbose first."""


def _logger(name: str) -> logging.Logger | None:
    if name == ROOT:
        return logging.getLogger()
    found = logging.root.manager.loggerDict.get(name)
    return found if isinstance(found, logging.Logger) else None


def current_levels() -> dict[str, str]:
    """Every logger's level in force, by name."""
    names = [ROOT, *(name for name in logging.root.manager.loggerDict if _logger(name) is not None)]
    return {name: level_name(logging.getLogger(None if name == ROOT else name)) for name in sorted(names)}


def level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next((name for name, number in LEVELS.items() if level <= number), "FATAL")


def alter_levels(
    configs: Sequence[IncrementalAlterConfigsRequest.AlterableConfig], *, validate_only: bool
) -> None:
    """Set or unset levels. If one change is refused, no level changes."""
    changes = [(_checked_logger(config), _checked_level(config)) for config in configs]
    if len({config.name for config in configs}) < len(configs):
        raise _invalid_request("A logger is given more than once.")
    if not validate_only:
        for logger, level in changes:
            logger.setLevel(level)


def _checked_logger(config: IncrementalAlterConfigsRequest.AlterableConfig) -> logging.Logger:
    logger = _logger(config.name)
    if logger is None:
        raise ApiException(ErrorCode.INVALID_CONFIG, f"Logger {config.name} does not exist!")
    return logger


def _checked_level(config: IncrementalAlterConfigsRequest.AlterableConfig) -> int:
    if config.config_operation == AlterConfigOp.DELETE:
        if config.name == ROOT:
            raise _invalid_request("Removing the log level of the root logger is not allowed.")
        return logging.NOTSET
    if config.config_operation != AlterConfigOp.SET:
        raise _invalid_request(
            f"AlterConfigOp {config.config_operation} is not allowed for loggers: they can be set or deleted."
        )
    level = LEVELS.get(config.value or "")
    if level is None:
        raise ApiException(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {config.name} to {config.value}: "
            f"valid log levels are {', '.join(sorted(LEVELS))}.",
        )
    return level


def _invalid_request(message: str) -> ApiException:
    return ApiException(ErrorCode.INVALID_REQUEST, message)
