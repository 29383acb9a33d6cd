"""The transaction coordinator: a state machine for each transactional id, kept in `__transaction_state`."""
