"""Who may do what: users, roles, sessions, request checks, headers, masks and the audit log."""
