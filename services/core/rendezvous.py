"""Rendezvous hashing: everyone agrees on one node for a key, and only a lost node's keys move."""

from collections.abc import Iterable

import mmh3


def weight(node: str, key: str) -> int:
    """How strongly `node` claims `key`; the highest claim wins. Source: Thaler and Ravishankar (1998)."""
    claim: int = mmh3.hash64(f"{node}\0{key}".encode(), seed=0, x64arch=True, signed=False)[0]
    return claim


def choose(nodes: Iterable[str], key: str) -> str | None:
    """The node that holds `key`; None when there are none. Ties, which do not happen, go to the greater name."""
    return max(nodes, key=lambda node: (weight(node, key), node), default=None)
