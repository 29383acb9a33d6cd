"""The group coordinator: groups of every type and their committed offsets."""
