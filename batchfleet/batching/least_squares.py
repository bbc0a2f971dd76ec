"""Non-negative least squares over relative errors, for the few terms of the cost model.

With three terms the subsets of them can simply be tried (Lawson and Hanson's active-set method searches them
cleverly, which pays from about ten terms on).
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

Row: TypeAlias = tuple[float, float, float]
"""The terms of one observation."""

_SUBSETS = ((0, 1), (0, 1, 2), (1, 2), (0, 2), (1,), (0,), (2,))
"""The plain line first: what explains no more than it does is not worth another term."""

_WORTH = 0.98
_ROUNDS = 5
_TRUSTED = 0.15
"""Relative errors beyond this count less (Huber): a descheduled pass must not bend the fit."""


def fit_relative(rows: Sequence[Row], targets: Sequence[float], weights: Sequence[float]) -> Row:
    """Returns non-negative coefficients that minimise the weighted squared errors relative to `targets`.

    Robust by iterated reweighting with Huber's weights.

    Args:
        rows: The terms of each observation.
        targets: Positive values to explain.
        weights: How much each observation counts.
    """
    scaled = [(r[0] / t, r[1] / t, r[2] / t) for r, t in zip(rows, targets, strict=True)]
    trust = list(weights)
    found: Row = (0.0, 0.0, 0.0)
    for _ in range(_ROUNDS):
        found = _best_subset(scaled, trust)
        errors = [abs(_apply(found, row) - 1) for row in scaled]
        trust = [w * min(1.0, _TRUSTED / max(e, 1e-12)) for w, e in zip(weights, errors, strict=True)]
    return found


def _best_subset(rows: Sequence[Row], weights: Sequence[float]) -> Row:
    best: Row = (0.0, 0.0, 0.0)
    least = math.inf
    for subset in _SUBSETS:
        solved = _solve(rows, weights, subset)
        if solved is None or min(solved) < 0:
            continue
        error = sum(w * (_apply(solved, row) - 1) ** 2 for w, row in zip(weights, rows, strict=True))
        if error < least * _WORTH:
            best, least = solved, error
    return best


def _apply(coefficients: Row, row: Row) -> float:
    return coefficients[0] * row[0] + coefficients[1] * row[1] + coefficients[2] * row[2]


def _solve(rows: Sequence[Row], weights: Sequence[float], subset: Sequence[int]) -> Row | None:
    """Solves the normal equations of the terms in `subset`, each scaled to unit length; None if they are dependent."""
    norms = [sum(w * row[k] ** 2 for w, row in zip(weights, rows, strict=True)) ** 0.5 for k in subset]
    if min(norms) <= 0:
        return None
    system = []
    for k, norm in zip(subset, norms, strict=True):
        line = [
            sum(w * row[k] * row[m] for w, row in zip(weights, rows, strict=True)) / norm / other
            for m, other in zip(subset, norms, strict=True)
        ]
        line.append(sum(w * row[k] for w, row in zip(weights, rows, strict=True)) / norm)
        system.append(line)
    solution = _eliminate(system)
    if solution is None:
        return None
    result = [0.0, 0.0, 0.0]
    for k, norm, value in zip(subset, norms, solution, strict=True):
        result[k] = value / norm
    return result[0], result[1], result[2]


def _eliminate(system: list[list[float]]) -> list[float] | None:
    """Solves a small positive definite system by Gauss's elimination; None if it is singular."""
    size = len(system)
    for k in range(size):
        pivot = system[k][k]
        if pivot < 1e-10:
            return None
        for line in system[k + 1 :]:
            factor = line[k] / pivot
            for m in range(k, size + 1):
                line[m] -= factor * system[k][m]
    values = [0.0] * size
    for k in reversed(range(size)):
        known = sum(system[k][m] * values[m] for m in range(k + 1, size))
        values[k] = (system[k][size] - known) / system[k][k]
    return values
