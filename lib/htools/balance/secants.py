"""Secants below standard deviations, which make bounds of the score sums.

A standard deviation is the root of a variance, and a root bends down: between the
least and the largest change of the variance its secant lies below it. Secants belong to
the moments of one state; ``slack`` tells by how much other moments may undercut them.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from ganeti.htools.score import components
from ganeti.htools.score.deviations import DeviationMetrics
from ganeti.htools.state.instance_deltas import Bools, Floats, Ints

#: What reserved memory, as a share of a node's, costs besides its metric.
RISE: Final = components.WEIGHT["reserved_mem_rtotal"]
#: Part of the range of nodes' distances from the mean by which it may grow.
_MARGIN: Final = 0.05
#: Nodes that a move touches.
_TOUCHED: Final = 3


class SizeDeltas(msgspec.Struct, frozen=True):
    """Instances that are alike in all that targets see of them.

    Attributes:
        gain: by role of a target: sizes x metrics, units that it gains.
        more: the same for free spindles; empty where no storage is exclusive.
        kept: memory that a secondary keeps for each.
    """

    gain: dict[str, Floats]
    more: dict[str, Floats]
    kept: Ints


class TargetRange(msgspec.Struct):
    """What instances add at a target at least and at most: sizes x metrics."""

    low: Floats
    high: Floats


class SecantBounds:
    """Secants for each size of instances: sizes x metrics.

    Attributes:
        moments: means and variances they belong to; distances from these means are of
            the present state once ``take`` was told of changes.
        slope: of the lines.
        limits: by role of the target, changes of the sum of squares.
    """

    def __init__(
        self, metrics: DeviationMetrics, sizes: SizeDeltas, target: Ints
    ) -> None:
        """Make secants for the present moments."""
        self._spreads, self._sizes = metrics, sizes
        self.moments = metrics.moments.copy()
        self._root = np.sqrt(self.moments.variance)
        factors = self.factors(target)
        margin = _MARGIN * np.ptp(factors, axis=1)
        self._least = factors.min(axis=1) - margin
        self._most = factors.max(axis=1) + margin
        self.limits = {role: self._limits(role, target) for role in sizes.gain}
        self.slope = self._slopes()
        self._reach = self._reaches()
        self._lowest = np.zeros(len(metrics.weight))
        self._highest = np.zeros(len(metrics.weight))

    def factors(self, nodes: Ints) -> Floats:
        """Give what each unit that nodes gain adds to sums of squares.

        Returns:
            by units of rows and, if there is such storage, free spindles: nodes x
            metrics. In the last column of the first is just the distance.
        """
        metrics, far = self._spreads, self.moments.deviation[nodes]
        scales = [metrics.inverse[nodes]]
        if metrics.second is not None:
            scales.append(metrics.second[nodes])
        result = 2.0 * np.array(scales) * far
        result[0, :, -1] = far[:, -1]
        return result

    def _limits(self, role: str, target: Ints) -> TargetRange:
        """Find what a target can add to sums of squares."""
        metrics, sizes = self._spreads, self._sizes
        scales = [(sizes.gain[role], metrics.inverse[target])]
        if metrics.second is not None:
            scales.append((sizes.more[role], metrics.second[target]))
        zero: Floats = np.zeros(sizes.gain[role].shape)
        low, high = zero, zero
        for at, (gain, scale) in enumerate(scales):
            ends = gain * self._least[at], gain * self._most[at]
            square = (gain * scale.min(axis=0)) ** 2, (gain * scale.max(axis=0)) ** 2
            low = low + np.minimum(*ends) + square[0]
            high = high + np.maximum(*ends) + square[1]
        if role == "s":
            low[:, -1], high[:, -1] = self._limits_of_reserved(target)
        return TargetRange(low, high)

    def _limits_of_reserved(self, target: Ints) -> tuple[Floats, Floats]:
        step = self._sizes.kept * self._spreads.inverse_memory[target].max()
        least, most = self._least[0, -1], self._most[0, -1]
        best = np.clip(-least, 0.0, step)
        low = best * (best + 2.0 * least)
        high = np.maximum(step * (step + 2.0 * most), 0.0)
        return low, high

    def _slopes(self) -> Floats:
        """Choose slopes that suit what moves to the best targets change."""
        count, variance = self._spreads.count, self.moments.variance
        limits = self.limits.values()
        if not limits:
            return np.zeros(self._sizes.kept.shape)
        start = np.minimum.reduce([each.low for each in limits]) / count
        end = np.maximum.reduce([each.high for each in limits]) / count
        start = np.maximum(start, -variance)
        end = np.maximum(end, start)
        rise = np.sqrt(variance + end) - np.sqrt(variance + start)
        wide = end > start
        slope = np.where(wide, rise / np.where(wide, end - start, 1.0), 0.0)
        result: Floats = slope * self._spreads.weight
        return result

    def _reaches(self) -> Floats:
        """Find by how much one move can change the sums of values at most."""
        metrics = self._spreads

        def furthest(gain: dict[tuple[str, str], Floats], scale: Floats) -> Floats:
            most = [np.abs(of).max(axis=0) for of in gain.values()]
            result: Floats = np.maximum.reduce(most) * scale.max(axis=0)
            return result

        reach = furthest(metrics.gain, metrics.inverse)
        if metrics.second is not None:
            reach += furthest(metrics.more, metrics.second)
        kept = self._sizes.kept.max(initial=0)
        reach[-1] = kept * metrics.inverse_memory.max()
        result: Floats = _TOUCHED * reach
        return result

    def take(self, nodes: Ints, among: Ints) -> bool:
        """Take over changes of some nodes; False if secants do not reach that far.

        ``among`` are those of the nodes that may be targets.
        """
        moments = self.moments
        moments.deviation[nodes] = self._spreads.from_mean(nodes, moments.mean)
        factors = self.factors(among)
        least, most = self._least[:, None], self._most[:, None]
        return bool(((factors >= least) & (factors <= most)).all())

    def at_targets(self, role: str, nodes: Ints) -> Floats:
        """Give what targets add but for reserved memory: sizes x nodes."""
        metrics, sizes = self._spreads, self._sizes
        factors = self.factors(nodes)
        gain = sizes.gain[role]
        linear = self.slope * gain
        result: Floats = linear @ factors[0].T
        result += (linear * gain) @ (metrics.inverse[nodes] ** 2).T
        if metrics.second is not None:
            more = sizes.more[role]
            linear = self.slope * more
            result += linear @ factors[1].T
            result += (linear * more) @ (metrics.second[nodes] ** 2).T
        result /= metrics.count
        return result

    def reserve(
        self, slope: Floats, node: Ints, least: Floats | Ints, most: Floats | Ints
    ) -> Floats:
        """Give the least that keeping some more memory on nodes can change."""
        inverse = self._spreads.inverse_memory[node]
        far, count = self.moments.deviation[node, -1], self._spreads.count
        with np.errstate(divide="ignore", invalid="ignore"):
            best = -far - RISE * count / (2.0 * slope)
        low = least * inverse
        step = np.minimum(np.maximum(best, low), most * inverse)
        step = np.where(slope > 0, step, low)
        result: Floats = slope * step * (step + 2.0 * far) / count + RISE * step
        return result

    def below(
        self,
        roles: Sequence[str],
        size: Ints,
        low: Floats,
        high: Floats,
        legal: Bools,
    ) -> Floats:
        """Give where lines begin that are below the roots: moves x instances.

        Args:
            roles: of the targets of each kind of move.
            size: of the instances.
            low: the least that their old nodes add to the sum of squares.
            high: the most.
            legal: whose moves matter.
        """
        count, variance = self._spreads.count, self.moments.variance
        limits, slope = [self.limits[role] for role in roles], self.slope[size]
        low = low + np.array([each.low[size] for each in limits])
        high = high + np.array([each.high[size] for each in limits])
        low = np.maximum(low / count, -variance)
        high = np.maximum(high / count, -variance)
        self.reach_over(low[legal], high[legal])
        ends = []
        for change in (low, high):
            root = np.sqrt(variance + change)
            root -= self._root
            root *= self._spreads.weight
            root -= slope * change
            ends.append(root)
        result: Floats = np.minimum(*ends).sum(axis=-1)
        return result

    def reach_over(self, low: Floats, high: Floats) -> None:
        """Take note of changes of variances that moves may bring."""
        if len(low):
            self._lowest = np.minimum(self._lowest, low.min(axis=0))
            self._highest = np.maximum(self._highest, high.max(axis=0))

    def slack(self) -> float:
        """Tell how far below the bounds scores may fall with the present moments.

        For each metric the root after a move less the root before it is taken with
        both variances: how the two differ is monotonous in what the move changes, so
        that the ends of its range tell.
        """
        old, new = self.moments, self._spreads.moments
        shift = 2.0 * np.abs(new.mean - old.mean) * self._reach / self._spreads.count
        fresh = new.variance - shift
        at = np.where(
            fresh < old.variance, np.maximum(self._lowest, -fresh), self._highest
        )
        below = np.sqrt(np.maximum(old.variance + at, 0.0))
        below -= np.sqrt(np.maximum(fresh + at, 0.0))
        below += np.sqrt(new.variance) - self._root
        return float(np.maximum(below, 0.0) @ self._spreads.weight)
