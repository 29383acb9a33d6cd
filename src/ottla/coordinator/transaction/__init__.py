"""The transaction coordinator: one state machine for each transactional id, kept in `__transaction_state`."""
