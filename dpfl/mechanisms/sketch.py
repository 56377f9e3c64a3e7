# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mechanisms that sum sketches of updates.

    mechanism = SketchedDdg(100, 1.0, 1.0, bits=16, compression_rate=4)
    shape = mechanism.shape(dimension)   # of the sketch: its rows, widths and rate

`codecs.sketch` has their codecs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Optional

from dp_accounting import DpEvent

from dpfl import checks
from dpfl.fields import AUTO, CHOSEN_BEFORE, option
from dpfl.mechanisms import integer, mechanism
from dpfl.mechanisms.participation import Participation

# Default number of rows of a sketch; the papers take 15.
_ROWS = 16


@dataclasses.dataclass(frozen=True)
class SketchShape:
    """Sizes of the sketch of an update, or of the sketches of its layers.

    Attributes:
      rows: l.
      parts: The length d_p and the compression rate of each part.
    """

    rows: int
    parts: tuple[tuple[int, float], ...]

    @property
    def widths(self) -> list[int]:
        """The width w of each part, ceil(d_p / (r l))."""
        return [
            max(1, math.ceil(length / (rate * self.rows) - 1e-9))
            for length, rate in self.parts
        ]

    @property
    def length(self) -> int:
        """m, the length of all sketches together."""
        return self.rows * sum(self.widths)

    @property
    def rate(self) -> float:
        """d / m, the actual compression rate."""
        return self._dimension / self.length

    @property
    def rate_asked_for(self) -> float:
        """d / m, if sketches could be of any size."""
        return self._dimension / sum(length / rate for length, rate in self.parts)

    @property
    def _dimension(self) -> int:
        return sum(length for length, _ in self.parts)

    @property
    def error(self) -> float:
        """E ||S^T S g - g||^2 / ||g||^2 of g with all coordinates of one size."""
        parts = zip(self.parts, self.widths)
        errors = (self.errors(length, width) for (length, _), width in parts)
        return sum(errors) / self._dimension

    def errors(self, length: int, width: int) -> float:
        """The errors of pairs of coordinates, each with variance 1/m.

        Pairs within a block cannot collide.
        """
        sketch = self.rows * width
        blocks = math.ceil(length / sketch)
        pairs = 0
        for block in range(blocks):
            starts = ((row * blocks + block) * width for row in range(self.rows))
            own = sum(min(max(length - start, 0), width) for start in starts)
            pairs += own * (length - own)
        return pairs / sketch


# Least actual rate of a sketch, over the requested one.
_LEAST_PART_OF_RATE = 0.9
_MOST_ROWS = 2**20
# Numbers of a matrix of float32 that takes a gigabyte.
_MOST_MATRIX_NUMBERS = 2**28
# Most solver steps, each of which multiplies by the sketch twice: more would take days.
_MOST_SOLVER_STEPS = 10**6


def _factor(name: str, value: Any) -> float:
    most = mechanism.LARGEST_FACTOR
    return checks.real(name, value, at_least=1 / most, at_most=most)


def _numbers(name: str, text: Optional[str]) -> list[float]:
    """The numbers between the commas of a text."""
    if text is None:
        return []
    try:
        return [float(part) for part in text.split(",")]
    except (AttributeError, ValueError):
        raise ValueError(
            f"{name} must be comma-separated numbers, found {text!r}"
        ) from None


@dataclasses.dataclass(frozen=True)
class CountSketched(mechanism.NoiseMechanism):
    """Base of mechanisms with a count-mean sketch.

    Sketches are scaled so that they keep norms. The published experiments encode with
    1/l where this has 1/sqrt(l): a clip c there is sketch_clip clip_norm = sqrt(l) c
    here.

    The fields' own sentences describe them, and besides:

    Attributes:
      compression_rate: r = d / m, or "auto" until `choice.resolve` has chosen a number.
      sketch_length: l, a power of two.
    """

    compression_rate: float = option(
        mechanism.DEFAULT_COMPRESSION_RATE,
        "Length of the update over the sketch's, at least 1; auto for the largest with "
        "at most 1.5 times the error without a sketch.",
        auto=True,
        at_least=1,
        at_most=mechanism.LARGEST_FACTOR,
    )
    sketch_length: Optional[int] = option(
        None,
        "Rows of the sketch, a power of two; unset for 16.",
        at_least=1,
        at_most=_MOST_ROWS,
    )
    sketch_clip: float = option(
        1.1, "L2 bound of a sketch, over clip_norm.", check=_factor
    )
    layers: Optional[str] = option(
        None,
        "Comma-separated lengths of the first layers; each of them and the rest are "
        "sketched separately; unset for one sketch.",
    )
    layer_rates: Optional[str] = option(
        None,
        "Comma-separated compression rates of the layers and the rest; unset for "
        "compression_rate.",
    )
    # See `Mechanism.gone_fields`.
    former_fields: ClassVar[Mapping[str, Any]] = {
        "sketch": "shifts",
        "rate_tolerance": 1.5,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = self.sketch_length
        is_power = rows is None or not rows & (rows - 1)
        checks.require(is_power, "sketch_length", "a power of two", rows)
        self._check_layers()

    def _check_layers(self) -> None:
        lengths = _numbers("layers", self.layers)
        if not all(length >= 1 and length.is_integer() for length in lengths):
            raise ValueError(f"layers must be positive integers, found {self.layers!r}")
        rates = _numbers("layer_rates", self.layer_rates)
        count, largest = len(lengths) + 1, mechanism.LARGEST_FACTOR
        is_right = self.layer_rates is None or len(rates) == count
        is_right &= all(1 <= rate <= largest for rate in rates)
        wanted = (
            f"{count} numbers from 1 to {largest:g}, of each of layers and the rest"
        )
        checks.require(is_right, "layer_rates", wanted, self.layer_rates)

    def check(self, participation: Participation, dimension: int) -> None:
        """See base class.

        A sketch has at least one number in each row, and the same number in all of
        them: a rate of which that leaves less than 0.9 is refused.
        """
        super().check(participation, dimension)
        self._check_rate(self.shape(dimension), dimension)

    def _check_rate(self, shape: SketchShape, dimension: int) -> None:
        if shape.rate >= _LEAST_PART_OF_RATE * shape.rate_asked_for:
            return
        name = "compression_rate" if self.layer_rates is None else "layer_rates"
        # Rounded up: a rate a little smaller would need one more number a row.
        raise ValueError(
            f"{name} must be within a tenth of {shape.rate * 1.0005:.4g}, the rate of "
            f"{shape.rows} rows (sketch_length) in {dimension} dimensions, found "
            f"{getattr(self, name)!r}"
        )

    def shape(self, dimension: int) -> SketchShape:
        """The sizes of the sketch.

        Raises:
          ValueError: If the layers leave nothing of `dimension`, a single sketch has so
            many more rows than numbers that its rate is out of reach, or the rate is
            yet to be chosen.
        """
        rate = self.compression_rate
        checks.require(rate != AUTO, "compression_rate", CHOSEN_BEFORE, rate)
        lengths = [int(length) for length in _numbers("layers", self.layers)]
        left = dimension - sum(lengths)
        wanted = f"of a sum below the dimension of {dimension}"
        checks.require(left >= 1, "layers", wanted, self.layers)
        lengths.append(left)
        rates = _numbers("layer_rates", self.layer_rates)
        rates = rates or [rate] * len(lengths)
        rows = self.sketch_length
        rows = _ROWS if rows is None else rows
        shape = SketchShape(rows, tuple(zip(lengths, rates)))
        if len(lengths) == 1 and rows > dimension / rates[0]:
            self._check_rate(shape, dimension)
        return shape

    def compression_error(self, dimension: int) -> float:
        """E ||decoded - v||^2 / ||v||^2 of the sketch alone; at most d / m."""
        return self.shape(dimension).error


@dataclasses.dataclass(frozen=True)
class SketchedDdg(CountSketched, integer.DistributedDiscreteGaussian):
    """Count-mean sketch, then distributed discrete Gaussian (Chen et al. 2022, Alg. 2).

    A client clips its update to `clip_norm`, sketches it by the round's shared sketch,
    clips the sketch to `sketch_clip` times that, and goes on as in
    `DistributedDiscreteGaussian`, on m = d / `compression_rate` numbers. The server
    decodes the sum by the sketch's transpose. Privacy rests on the clip in sketch
    space alone: `noise_multiplier` is the noise over `sketch_clip * clip_norm`.

    The server holds back decoded coordinates below `threshold` and adds them to later
    rounds (error feedback).
    """

    threshold: Optional[float] = option(
        None,
        "Standard deviations of noise below which the server holds a decoded "
        "coordinate back for later rounds; unset to hold nothing back.",
        above=0,
        at_most=mechanism.LARGEST_FACTOR,
    )

    name: ClassVar[str] = "sketched_ddg"

    @property
    def vector_clip(self) -> float:
        """L2 bound of a sketch, over `clip_norm`."""
        return self.sketch_clip

    def vector_dimension(self, dimension: int) -> int:
        """The length m of the sketch."""
        return self.shape(dimension).length


@dataclasses.dataclass(frozen=True)
class ProjectAndPerturb(CountSketched):
    """Count-mean sketch, then Gaussian noise at a trusted server (Chen et al. 2022, 5).

    A client clips its update to `clip_norm`, sketches it, clips the sketch to
    `sketch_clip` times that, and sends it as float32. The server adds
    N(0, sigma^2 I) to the sum of the sketches, sigma = `noise_multiplier` sketch_clip
    clip_norm, divides by n and decodes by the sketch's transpose.
    """

    name: ClassVar[str] = "project_and_perturb"
    privacy_page: ClassVar[str] = "integer_release.md"
    shares_a_seed: ClassVar[bool] = True

    @property
    def stddev(self) -> float:
        """sigma, the standard deviation of the noise on the sum of the sketches."""
        return self.noise_multiplier * self.sketch_clip * self.clip_norm

    def round_dp_event(self, dimension: int, sampling_probability: float) -> DpEvent:
        """A Gaussian release of m numbers, sampled below probability 1."""
        return mechanism.gaussian_event(self.noise_multiplier, sampling_probability)

    def uplink_bits(self, dimension: int) -> float:
        """32 bits for each of m numbers."""
        return float(mechanism.FLOAT_BITS * self.shape(dimension).length)

    def mean_squared_error(self, dimension: int) -> float:
        """d (sigma / n)^2 + compression error clip_norm^2, of equal updates."""
        noise = dimension * (self.stddev / self.cohort_size) ** 2
        return noise + self.compression_error(dimension) * self.clip_norm**2


@dataclasses.dataclass(frozen=True)
class SparseRecovery(integer.DistributedDiscreteGaussian):
    """Gaussian sketch, discrete Gaussian noise, LASSO (Chen et al. 2022, Algorithm 3).

    For a mean of updates with s nonzero coordinates. The sketch S has
    m = ceil(measurements s ln d) rows, with entries N(0, 1/m); sketches are clipped to
    clip_norm sigma_max(S), which no sketch of an update within `clip_norm` exceeds;
    `noise_multiplier` is the noise over that. The server solves
      min over x of ||y - S x||^2 / 2 + lambda ||x||_1,
      lambda = stddev sqrt(2 ln d), which noise of stddev on y hardly exceeds,
    in `solver_steps` steps of FISTA. S has m d numbers and is stored as a whole, which
    `check` refuses beyond a gigabyte: by default, beyond d of some 660,000. `sparsity`
    is s.
    """

    sparsity: int = option(
        10,
        "Coordinates of a mean of updates that are not zero.",
        at_least=1,
        at_most=mechanism.MOST_DIMENSIONS,
    )
    measurements: float = option(
        3.0,
        "Rows of the sketch, as a multiple of sparsity ln(d) for d parameters.",
        check=_factor,
    )
    solver_steps: int = option(
        500, "Number of FISTA steps.", at_least=1, at_most=_MOST_SOLVER_STEPS
    )

    # See `Mechanism.gone_fields`.
    former_fields: ClassVar[Mapping[str, Any]] = {"penalty": 1.0}

    name: ClassVar[str] = "sparse_recovery"
    has_whole_error: ClassVar[bool] = False

    def check(self, participation: Participation, dimension: int) -> None:
        """See base class."""
        super().check(participation, dimension)
        self.check_matrix(dimension)

    def check_matrix(self, dimension: int) -> None:
        """Raises ValueError if S would take more than a gigabyte."""
        numbers = self.vector_dimension(dimension) * dimension
        if numbers > _MOST_MATRIX_NUMBERS:
            raise ValueError(
                "sparsity and measurements must give a sketch matrix of at most "
                f"{_MOST_MATRIX_NUMBERS} entries, found {numbers} with "
                f"sparsity={self.sparsity}, measurements={self.measurements:g} and "
                f"{dimension} parameters"
            )

    def vector_dimension(self, dimension: int) -> int:
        """The length m of the sketch, at most d."""
        rows = self.measurements * self.sparsity * math.log(max(dimension, 2))
        return min(dimension, math.ceil(rows))

    def typical_vector_clip(self, dimension: int) -> float:
        """1 + sqrt(d/m), the limit of sigma_max(S)."""
        return 1 + math.sqrt(dimension / self.vector_dimension(dimension))

    def penalty_factor(self, dimension: int) -> float:
        """Lambda over the noise on a coordinate of y."""
        return math.sqrt(2 * math.log(max(dimension, 2)))

    def mean_squared_error(self, dimension: int) -> float:
        """s (stddev^2 + lambda^2), the error of soft thresholding s coordinates.

        It is the order of the error, exact if S were orthogonal on sparse vectors and
        the noise on S^T y independent of which coordinates are large; not a bound.
        """
        grid = self.grid(dimension)
        clip = self.clip_norm * self.typical_vector_clip(dimension)
        noise = self.share_variance(grid.local_stddev_steps) + 1 / 6
        variance = noise * (grid.granularity * clip) ** 2 / self.cohort_size
        factor = 1 + self.penalty_factor(dimension) ** 2
        return self.sparsity * variance * factor
