"""Secants below square roots: they turn lower bounds of scores into sums.

For one column with variance v = sigma^2 and a move that changes the variance by g in
[a, b], let h(g) = sqrt(v + g) - sigma - s g. The root is concave, so h is concave for
every slope s, and a concave function is on an interval nowhere below the lower of its
ends:

    sqrt(v + g) - sigma >= s g + min(h(a), h(b)).

``below`` returns the constants min(h(a), h(b)). With the variances at both ends,
A = v + a and B = v + b, the secant has the slope s = 1 / (sqrt A + sqrt B). It is tight
at both ends, and its largest loss in between is

    (B - A)^2 / (4 (sqrt A + sqrt B)^3).

There is one slope per size and column, because slopes are part of the table of sizes x
targets. The slope is that of the range of the targets; for the range of an instance
with its old nodes the bound is tight at one end. All values and variances have no unit;
a slope is score per unit of variance.

Reserved memory: a rise of rho MiB on node i, the step y = rho / T_i, costs at least the
least of s y (y + 2 delta_i) / u + w y over the possible rises, with the weight w of
``reserved_mem_rtotal``. For s > 0 this is a convex parabola with its vertex at
y = -delta_i - w u / (2 s), so the least is at the vertex clipped to the range.

Secants belong to the moments mu, sigma of one state. For the present moments mu*,
sigma*, Q about the new mean differs by 2 D (mu - mu*), so that g* >= g - eta with
eta = 2 |mu* - mu| max |D| / u, and the bound is too high by at most

    (sqrt(sigma^2 + g) - sigma) - (sqrt(max(0, sigma*^2 - eta + g)) - sigma*).

Its derivative in g has one sign while the second root is positive; where that root is
0, it grows with g. So the ends of the range of g, and the g at which the second root
becomes 0, give the maximum. ``slack`` is the weighted sum of these maxima. Tests:
test/py/unit/decisions/htools/balance/test_bound_terms.py.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.score.deviations import DeviationMetrics
from ganeti.decisions.htools.state.amounts import Flags, Floats, Ints

#: Score per unit of reserved memory (share of a node) besides the deviation.
RISE: Final = components.WEIGHT[components.RESERVED_TOTAL]
#: Margin of the limits, as part of the range of deviations: larger limits loosen
#: bounds, smaller ones are left after fewer moves.
_MARGIN: Final = 0.05
#: Most nodes that a move touches.
_TOUCHED: Final = 3


class SizeDeltas(msgspec.Struct, frozen=True):
    """Sizes: instances that are alike in all that targets see of them.

    Attributes:
        gain: by role of a target: sizes x columns, units that it gains.
        more: the same for free spindles; empty where no storage is exclusive.
        kept: memory that a secondary reserves for each, in MiB.
    """

    gain: dict[str, Floats]
    more: dict[str, Floats]
    kept: Ints


class TargetRange(msgspec.Struct):
    """Least and most Q_t that sizes add at any target: sizes x columns."""

    low: Floats
    high: Floats


class SecantBounds:
    """Secants for each size of instances: sizes x columns.

    Attributes:
        moments: means and variances of the secants; the deviations from these means are
            of the present state after ``take``.
        slope: of the secants, weighted.
        limits: by role of the target, changes of the sum of squares.
    """

    def __init__(
        self, metrics: DeviationMetrics, sizes: SizeDeltas, target: Ints
    ) -> None:
        """Make secants for the present moments."""
        self._metrics, self._sizes = metrics, sizes
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
        """Return the linear part of what one unit adds to sums of squares.

        Returns:
            2 alpha_i delta_i for a unit of value alpha_i, by units of rows and, if some
            storage is exclusive, of free spindles: nodes x columns. The last column of
            the first is delta_i alone.
        """
        metrics, far = self._metrics, self.moments.deviation[nodes]
        scales = [metrics.inverse[nodes]]
        if metrics.second is not None:
            scales.append(metrics.second[nodes])
        result = 2.0 * np.array(scales) * far
        result[0, :, -1] = far[:, -1]
        return result

    def _limits(self, role: str, target: Ints) -> TargetRange:
        """Return the least and the most that a target adds to sums of squares."""
        metrics, sizes = self._metrics, self._sizes
        scales = [(sizes.gain[role], metrics.inverse[target])]
        if metrics.second is not None:
            scales.append((sizes.more[role], metrics.second[target]))
        zero: Floats = np.zeros(sizes.gain[role].shape)
        low, high = zero, zero
        for at, (gain, scale) in enumerate(scales):
            ends = gain * self._least[at], gain * self._most[at]
            # The square of a step is least and most at an end of the capacities.
            square = (gain * scale.min(axis=0)) ** 2, (gain * scale.max(axis=0)) ** 2
            low = low + np.minimum(*ends) + square[0]
            high = high + np.maximum(*ends) + square[1]
        if role == "s":
            low[:, -1], high[:, -1] = self._limits_of_reserved(target)
        return TargetRange(low, high)

    def _limits_of_reserved(self, target: Ints) -> tuple[Floats, Floats]:
        step = self._sizes.kept * self._metrics.inverse_memory[target].max()
        least, most = self._least[0, -1], self._most[0, -1]
        # y (y + 2 delta) with delta at its least: the vertex clipped to the range.
        best = np.clip(-least, 0.0, step)
        low = best * (best + 2.0 * least)
        high = np.maximum(step * (step + 2.0 * most), 0.0)
        return low, high

    def _slopes(self) -> Floats:
        """Return the weighted slopes of the secants over the ranges of targets."""
        count, variance = self._metrics.count, self.moments.variance
        limits = self.limits.values()
        if not limits:
            return np.zeros(self._sizes.kept.shape)
        start = np.minimum.reduce([each.low for each in limits]) / count
        end = np.maximum.reduce([each.high for each in limits]) / count
        # A variance is never negative, whatever the limits say.
        start = np.maximum(start, -variance)
        end = np.maximum(end, start)
        rise = np.sqrt(variance + end) - np.sqrt(variance + start)
        wide = end > start
        slope = np.where(wide, rise / np.where(wide, end - start, 1.0), 0.0)
        result: Floats = slope * self._metrics.weight
        return result

    def _reaches(self) -> Floats:
        """Return the most that one move changes the sums of values, max |D|."""
        metrics = self._metrics

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
        """Update the deviations of some nodes; return False if they leave the limits.

        ``among`` are those of the nodes that may be targets.
        """
        moments = self.moments
        moments.deviation[nodes] = self._metrics.from_mean(nodes, moments.mean)
        factors = self.factors(among)
        least, most = self._least[:, None], self._most[:, None]
        # Beyond the limits a bound could be too high: the caller starts again.
        return bool(((factors >= least) & (factors <= most)).all())

    def at_targets(self, role: str, nodes: Ints) -> Floats:
        """Return s Q_t / u without reserved memory: sizes x nodes."""
        metrics, sizes = self._metrics, self._sizes
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
        """Return the least cost of a rise of reserved memory between two limits."""
        inverse = self._metrics.inverse_memory[node]
        far, count = self.moments.deviation[node, -1], self._metrics.count
        with np.errstate(divide="ignore", invalid="ignore"):
            # The vertex of the parabola; without slope the line falls to the left.
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
        legal: Flags,
    ) -> Floats:
        """Return the constants of the lines below the roots: moves x instances.

        Args:
            roles: of the targets of each kind of move.
            size: of the instances.
            low: the least that their old nodes add to the sum of squares.
            high: the most.
            legal: the moves that matter for the slack.
        """
        count, variance = self._metrics.count, self.moments.variance
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
            root *= self._metrics.weight
            root -= slope * change
            ends.append(root)
        # A concave function is nowhere below the lower of its ends.
        result: Floats = np.minimum(*ends).sum(axis=-1)
        return result

    def reach_over(self, low: Floats, high: Floats) -> None:
        """Extend the range of changes of variances for which ``slack`` is valid."""
        if len(low):
            self._lowest = np.minimum(self._lowest, low.min(axis=0))
            self._highest = np.maximum(self._highest, high.max(axis=0))

    def slack(self) -> float:
        """Return by how much bounds may be too high with the present moments."""
        old, new = self.moments, self._metrics.moments
        shift = 2.0 * np.abs(new.mean - old.mean) * self._reach / self._metrics.count
        # The least variance that any move can start from, about the old mean.
        fresh = new.variance - shift
        at = np.where(
            fresh < old.variance, np.maximum(self._lowest, -fresh), self._highest
        )
        below = np.sqrt(np.maximum(old.variance + at, 0.0))
        below -= np.sqrt(np.maximum(fresh + at, 0.0))
        below += np.sqrt(new.variance) - self._root
        return float(np.maximum(below, 0.0) @ self._metrics.weight)
