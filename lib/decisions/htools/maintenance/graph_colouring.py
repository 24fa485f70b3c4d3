"""Greedy colouring of graphs: neighbours get different colours.

Three orders; each gives the next vertex the lowest colour that none of its neighbours
has. A vertex may be its own neighbour and have the same neighbour several times, which
counts in its degree. Known libraries break ties differently, and ties decide which of
several equal answers a user sees.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

#: Neighbours of each vertex.
Graph = Mapping[int, Sequence[int]]
#: Vertices of each colour, ascending.
Classes = list[list[int]]
_Rank = Callable[[int, dict[int, int]], tuple[int, ...]]


def largest_first(graph: Graph) -> Classes:
    """Colour by degree, the highest vertex first on ties."""
    return _colour(graph, lambda vertex, _known: (len(graph[vertex]), vertex))


def most_colours(graph: Graph) -> Classes:
    """Colour the vertex with the most colours among its neighbours next (DSATUR)."""

    def rank(vertex: int, known: dict[int, int]) -> tuple[int, ...]:
        around = {known[other] for other in graph[vertex] if other in known}
        return len(around), len(graph[vertex]), vertex

    return _colour(graph, rank)


def most_coloured(graph: Graph) -> Classes:
    """Colour the vertex with the most coloured neighbours next."""

    def rank(vertex: int, known: dict[int, int]) -> tuple[int, ...]:
        around = sum(other in known for other in graph[vertex])
        return around, len(graph[vertex]), vertex

    return _colour(graph, rank)


#: The algorithms by printed name, the preferred one first.
ALGORITHMS: Final[Mapping[str, Callable[[Graph], Classes]]] = {
    "LF": largest_first,
    "Dsatur": most_colours,
    "Dcolor": most_coloured,
}


def colour(graph: Graph) -> dict[str, Classes]:
    """Colour a graph with every algorithm."""
    return {name: algorithm(graph) for name, algorithm in ALGORITHMS.items()}


def _colour(graph: Graph, rank: _Rank) -> Classes:
    known: dict[int, int] = {}
    left = set(graph)
    while left:
        vertex = max(left, key=lambda one: rank(one, known))
        left.remove(vertex)
        around = {known[other] for other in graph[vertex] if other in known}
        known[vertex] = next(c for c in range(len(graph)) if c not in around)
    count = max(known.values(), default=-1) + 1
    return [sorted(v for v in known if known[v] == colour) for colour in range(count)]
