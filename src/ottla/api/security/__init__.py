"""APIs about who clients are and what they may do."""

from __future__ import annotations

from typing import Final

APIS: Final = (
    "sasl_handshake",
    "sasl_authenticate",
    "describe_acls",
    "create_acls",
    "delete_acls",
    "describe_user_scram_credentials",
    "alter_user_scram_credentials",
    "describe_client_quotas",
    "alter_client_quotas",
    "create_delegation_token",
    "renew_delegation_token",
    "expire_delegation_token",
    "describe_delegation_token",
)
"""The files of this area, each called as its API is; the registry loads them."""
