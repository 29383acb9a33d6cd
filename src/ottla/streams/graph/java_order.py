"""The order in which Java's TreeSet iterates, for `Topology.describe()`.

The order of a HashSet is in `ottla.java_order`.
This is a commitment: `describe()` equals Kafka Streams' text character by character. Users compare both with a
plain diff, and keep the text as a golden file when they move an application. Kafka Streams prints node names in
the iteration order of those two collections. Its TreeSet compares nodes by their size, and sizes grow while the
set is filled: the order then depends on the shape of the red-black tree, so the tree itself is reproduced here.
tests/oracle/test_streams_topologies_java.py compares the text with that of Kafka Streams itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Leaf(Generic[T]):
    value: T
    parent: _Leaf[T] | None
    left: _Leaf[T] | None = None
    right: _Leaf[T] | None = None
    red: bool = True


class TreeSet(Generic[T]):
    """A red-black tree; it compares only while it inserts."""

    def __init__(self, before: Callable[[T, T], bool]) -> None:
        self._before = before
        self._root: _Leaf[T] | None = None

    def add(self, value: T) -> None:
        """Inserts a value unless it is there, and balances the tree as Java does."""
        parent, at = None, self._root
        while at is not None:
            if at.value is value:
                return
            parent, at = at, at.left if self._before(value, at.value) else at.right
        leaf = _Leaf(value, parent)
        if parent is None:
            self._root = leaf
        elif self._before(value, parent.value):
            parent.left = leaf
        else:
            parent.right = leaf
        self._balance(leaf)

    def _balance(self, leaf: _Leaf[T]) -> None:
        while leaf.parent is not None and leaf.parent.red:
            parent = leaf.parent
            grand = parent.parent
            if grand is None:
                break
            parent_is_left = parent is grand.left
            uncle = grand.right if parent_is_left else grand.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                grand.red = True
                leaf = grand
                continue
            inner = parent.right if parent_is_left else parent.left
            if leaf is inner:
                self._rotate(parent, to_left=parent_is_left)
                leaf, parent = parent, leaf
            parent.red = False
            grand.red = True
            self._rotate(grand, to_left=not parent_is_left)
        assert self._root is not None
        self._root.red = False

    def _rotate(self, top: _Leaf[T], *, to_left: bool) -> None:
        riser = top.right if to_left else top.left
        assert riser is not None
        moved = riser.left if to_left else riser.right
        if to_left:
            top.right, riser.left = moved, top
        else:
            top.left, riser.right = moved, top
        if moved is not None:
            moved.parent = top
        above = top.parent
        riser.parent, top.parent = above, riser
        if above is None:
            self._root = riser
        elif above.left is top:
            above.left = riser
        else:
            above.right = riser

    def __iter__(self) -> Iterator[T]:
        yield from self._walk(self._root)

    def _walk(self, leaf: _Leaf[T] | None) -> Iterator[T]:
        if leaf is not None:
            yield from self._walk(leaf.left)
            yield leaf.value
            yield from self._walk(leaf.right)
