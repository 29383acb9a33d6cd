"""Quotas of users, clients and addresses: rates, limits, and how long a client has to wait. Pure, on a given time."""
