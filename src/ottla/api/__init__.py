"""One file per API, grouped by area: `data/`, `topics/`, `cluster/`, `groups/`."""
