"""Prefix cache: a radix tree over token ids with page size 1 and least-recently-used eviction.

Token ids are packed (`tokens.pack`), so long prefixes are compared in C: a prompt of 4,000 tokens
takes about ten comparisons.

Source: SGLang 0.5.23, `srt/mem_cache/radix_cache.py`.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from runners.simulated_server.engine.tokens import TOKEN_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator


class Node:
    """Tokens that follow the parent's tokens; `users` counts the requests that hold them."""

    __slots__ = ("children", "key", "offered", "parent", "used", "users")

    def __init__(self, key: bytes, parent: Node | None) -> None:
        self.key = key
        self.parent = parent
        self.children: dict[bytes, Node] = {}
        self.users = 0
        self.used = 0
        self.offered = False


class PrefixCache:
    """Prefixes that earlier requests computed.

    Attributes:
        tokens: Tokens in the tree.
        held: Tokens that running requests hold; eviction skips them.
    """

    def __init__(self) -> None:
        self._root = Node(b"", None)
        self._clock = 0
        self._leaves: list[tuple[int, int, Node]] = []
        self._offers = 0
        self.tokens = 0
        self.held = 0

    def clear(self) -> None:
        """Remove all prefixes; no request may hold one."""
        self._root = Node(b"", None)
        self._leaves.clear()
        self.tokens = self.held = 0

    def match(self, packed: bytes) -> tuple[Node, int]:
        """Return the last node and the length of the longest cached prefix; splits a node there."""
        return self._walk(packed)

    def insert(self, packed: bytes) -> Node:
        """Cache all of these tokens; return the last node."""
        node, known = self._walk(packed)
        rest = packed[known * TOKEN_BYTES :]
        if not rest:
            return node
        leaf = Node(rest, node)
        leaf.used = self._clock
        node.children[rest[:TOKEN_BYTES]] = leaf
        self.tokens += len(rest) // TOKEN_BYTES
        self._offer(leaf)
        return leaf

    def hold(self, node: Node) -> None:
        """Protect a node and its ancestors from eviction."""
        for each in _path(node):
            if each.users == 0:
                self.held += len(each.key) // TOKEN_BYTES
            each.users += 1

    def release(self, node: Node) -> None:
        for each in _path(node):
            each.users -= 1
            if each.users == 0:
                self.held -= len(each.key) // TOKEN_BYTES
                self._offer(each)

    def shrink(self, limit: int) -> None:
        """Evict unheld leaves, least recently used first, down to `limit` tokens."""
        while self._leaves and self.tokens > limit:
            used, _, leaf = heapq.heappop(self._leaves)
            leaf.offered = False
            parent = leaf.parent
            if parent is None or leaf.children or leaf.users:
                continue  # evicted already, or not a free leaf yet
            if used != leaf.used:
                self._offer(leaf)
                continue
            del parent.children[leaf.key[:TOKEN_BYTES]]
            leaf.parent = None
            self.tokens -= len(leaf.key) // TOKEN_BYTES
            self._offer(parent)

    def _offer(self, node: Node) -> None:
        """Add a free leaf to the candidates for eviction; `shrink` checks it again."""
        free = node.parent is not None and not node.children and not node.users
        if free and not node.offered:
            node.offered = True
            self._offers += 1
            heapq.heappush(self._leaves, (node.used, self._offers, node))

    def _walk(self, packed: bytes) -> tuple[Node, int]:
        self._clock += 1
        node, at = self._root, 0
        while at < len(packed):
            child = node.children.get(packed[at : at + TOKEN_BYTES])
            if child is None:
                break
            shared = _shared(child.key, packed, at)
            child.used = self._clock
            at += shared
            if shared < len(child.key):
                node = self._split(child, shared)
                break
            node = child
        return node, at // TOKEN_BYTES

    def _split(self, node: Node, at: int) -> Node:
        parent = node.parent or self._root
        upper = Node(node.key[:at], parent)
        upper.users, upper.used = node.users, node.used
        parent.children[node.key[:TOKEN_BYTES]] = upper
        node.key, node.parent = node.key[at:], upper
        upper.children[node.key[:TOKEN_BYTES]] = node
        return upper


def _path(node: Node) -> Iterator[Node]:
    at: Node | None = node
    while at is not None and at.parent is not None:
        yield at
        at = at.parent


def _shared(key: bytes, packed: bytes, begin: int) -> int:
    """Return the bytes, in whole tokens, that `key` shares with `packed` from `begin` on."""
    end = min(len(key), len(packed) - begin)
    if key[:end] == packed[begin : begin + end]:
        return end
    low, high = 0, end // TOKEN_BYTES  # `low` tokens are shared, `high` tokens are not
    while high - low > 1:
        middle = (low + high) // 2
        a, b = low * TOKEN_BYTES, middle * TOKEN_BYTES
        if key[a:b] == packed[begin + a : begin + b]:
            low = middle
        else:
            high = middle
    return low * TOKEN_BYTES
