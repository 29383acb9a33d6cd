"""Classic groups: the clients elect a leader that assigns; the coordinator keeps the dance in step."""
