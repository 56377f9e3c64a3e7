# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The aggregator of a mechanism for training loops in JAX.

    agg = dpfl.jax_aggregator(mechanism, params)
    state = agg.init()
    update = jax.jit(agg.update)
    for updates in cohorts:  # a pytree as params, with a leading axis of clients
        mean, state, measured = update(state, updates, None, agg.entropy())

Messages and sums are integers, so that clients at once, in chunks, one after the other
and on several devices give the same sum. The mean is decoded from it in floats, whose
last bits are those of a compiled program.
"""

from __future__ import annotations

import collections
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpfl import checks, codecs, mechanisms, seed_domains
from dpfl.arrays import Array, philox
from dpfl.codecs import round_functions
from dpfl.codecs.base import Codec, Fields
from dpfl.engines.jax import cohorts
from dpfl.engines.jax.cohorts import JaxCohort, Updates
from dpfl.engines.jax.layout import TreeLayout, Update
from dpfl.vectors import randomness

# Numbers of the updates that are encoded at once, by default: a processor is faster
# if they stay in its cache.
_NUMBERS_AT_ONCE, _NUMBERS_ON_CPU = 1 << 25, 1 << 20
# Bytes of a number that programs of 32-bit types do not have.
_WIDE = 8


class AggregatorOutput(NamedTuple):
    """The result of a round.

    Attributes:
      mean: The release, in the structure and dtypes of the template.
      state: The state after the round.
      measured: Scalars by name, as `CodecFactory` describes them.
    """

    mean: Update
    state: Mapping[str, Any]
    measured: Mapping[str, Array]


class JaxAggregator:
    """A mechanism's round as a function that JAX transforms; see `jax_aggregator`.

    The state is a mapping of arrays of at most 32 bits, to be saved as any other:
    `round`, the mechanism's own, and `seed` if one was given. A state without a seed
    repeats nothing: all that is drawn in a round follows from its `entropy`. Beside a
    secure sum it has `public_seed`, of the next round's rotation or sketch, which all
    clients will know.
    """

    def __init__(
        self,
        codec: Codec,
        layout: TreeLayout,
        *,
        identity: str = "",
        axis_name: Optional[str] = None,
        clients_at_once: Optional[int] = None,
        **measuring: Any,
    ):
        """Initializes the aggregator.

        Args:
          codec: The mechanism's codec over JAX.
          layout: The layout of updates as vectors.
          identity: Text of everything else that a seed's noise depends on.
          axis_name: As for `jax_aggregator`.
          clients_at_once: As for `jax_aggregator`.
          **measuring: Further arguments of `RoundFunctions`.
        """
        self._codec = codec
        self._layout = layout
        self._identity = f"{identity}:{layout.dimension}:{layout.text}"
        self._types: dict[bool, Fields] = {}
        self._axis_name = axis_name
        is_cpu = jax.default_backend() == "cpu"
        numbers = _NUMBERS_ON_CPU if is_cpu else _NUMBERS_AT_ONCE
        most = numbers // codec.input_length
        self._clients_at_once = clients_at_once or max(most, 1)
        self._measuring = measuring

    @property
    def measures_exactly(self) -> bool:
        """Whether exact sums over clients are opened; see `RoundFunctions`."""
        return self._steps(True, None).measures_exactly

    @property
    def takes_weights(self) -> bool:
        """Whether `update` wants weights of the clients."""
        return self._codec.takes_weights

    @staticmethod
    def entropy() -> np.ndarray:
        """128 bits of the operating system's entropy, uint32[4], for one round.

        Whoever knows them can take the noise of the round off again.

        Raises:
          ValueError: If it is called within a compiled function.
        """
        _refuse_constant()
        return _drawn()

    def init(self, seed: Optional[int] = None) -> dict[str, Any]:
        """The state before the first round.

        Args:
          seed: None for noise of each round's entropy, as a release wants it. A whole
            number, for simulations that are to be repeated, makes everything a function
            of the state: a round that is executed again on other updates releases their
            difference without noise.

        Raises:
          TypeError: If `seed` is not an integer.
          ValueError: If it is negative, or 2**126 or more.
        """
        words = None
        if seed is not None:
            words = np.array(philox.seed_from_int(seed, self._identity), np.int64)
        with jax.enable_x64(True):
            steps = self._steps(words is not None, _drawn())
            return _narrow(steps.first_state(words))

    def update(
        self,
        state: Mapping[str, Any],
        updates: Updates,
        keys: Optional[Array] = None,
        entropy: Optional[Array] = None,
        mask: Optional[Array] = None,
        *,
        weights: Optional[Array] = None,
        has_aux: bool = False,
    ) -> Any:
        """Executes a round: encodes the updates, adds them up, releases their mean.

        Args:
          state: The state before the round.
          updates: A pytree as the template, each leaf with a leading axis of clients;
            or a function from places of clients, int32[m], to their updates, [m, ...],
            which is called for a chunk of clients at a time.
          keys: Secrets of the clients, one of its own to each: keys of `jax.random`, or
            integers [clients] or [clients, words]. A client's masks, rounding and noise
            follow from its key, its place and the round's entropy or seed. None for no
            keys; a function for updates needs them, or a mask, for the number of
            clients.
          entropy: uint32[4] of `entropy()`, drawn anew for each call; not needed if the
            state has a seed. It is an argument of the compiled function, since a
            constant would repeat its noise.
          mask: bool[clients], or numbers: a client at False or 0 adds nothing and is
            not counted. None for all clients.
          weights: Numbers [clients], for a mean that is weighted by them, and not
            otherwise.
          has_aux: Whether `updates` is a function that returns, beside the updates, a
            pytree of the clients' own numbers, [m] each, to be added up.

        Returns:
          An `AggregatorOutput`; with `has_aux` a pair of it and the sums over clients
          of their own numbers, which are exact, so outside of the privacy guarantee.

        Raises:
          TypeError: If the updates do not fit the template.
          ValueError: If there is no entropy where it is needed, or it is a constant of
            a compiled function; if the numbers of clients differ; or if there are fewer
            clients than the noise that they bring needs. If fewer are counted when the
            compiled function runs, zeros are in place of the sum.
        """
        cohort = self._cohort(updates, keys, mask, weights, has_aux)
        is_seeded = "seed" in state
        if not is_seeded:
            _check_entropy(entropy, (state, updates, keys, mask))
        with jax.enable_x64(True):
            steps = self._steps(is_seeded, entropy)
            wide = _widen(state, self._state_types(is_seeded))
            shared = steps.prepare(wide)
            total, sums, aux = self._sums(steps, wide, shared, cohort)
            made = steps.finish(wide, shared, total, sums)
            mean = self._layout.restore(made["result"])
            measured = dict(made["measurements"])
            output = AggregatorOutput(mean, _narrow(made["state"]), measured)
            return (output, aux) if has_aux else output

    def _steps(self, is_seeded: bool, entropy: Any) -> round_functions.RoundFunctions:
        def fresh_seed() -> Array:
            words = jnp.reshape(jnp.asarray(entropy, jnp.uint32), [2, 2])
            return lax.bitcast_convert_type(words, jnp.int64)

        fresh = None if is_seeded else fresh_seed
        return round_functions.RoundFunctions(self._codec, fresh, **self._measuring)

    def _state_types(self, is_seeded: bool) -> Fields:
        """Shapes and dtypes of a state of 64-bit types."""
        if is_seeded not in self._types:
            words = np.zeros([2], np.int64) if is_seeded else None
            steps = self._steps(is_seeded, np.zeros([4], np.uint32))
            self._types[is_seeded] = jax.eval_shape(lambda: steps.first_state(words))
        return self._types[is_seeded]

    def _cohort(
        self, updates: Updates, keys: Any, mask: Any, weights: Any, has_aux: bool
    ) -> JaxCohort:
        """The clients of this device; `update` describes the errors."""
        if (weights is not None) != self.takes_weights:
            wanted = "given" if self.takes_weights else "left out without weighted=True"
            raise ValueError(checks.message("weights", wanted, weights))
        numbers = {}
        if not callable(updates):
            updates = jax.tree.map(jnp.asarray, updates)
            numbers["updates"] = self._layout.clients(updates)
        if keys is not None:
            keys = cohorts.key_words(keys)
            numbers["keys"] = len(keys)
        if mask is not None:
            mask = jnp.asarray(mask).astype(bool)
            numbers["mask"] = len(mask)
        if weights is not None:
            weights = jnp.asarray(weights, jnp.float32)
            numbers["weights"] = len(weights)
        if not numbers:
            wanted = "given, or a mask, since a function has no number of clients"
            raise ValueError(checks.message("keys", wanted, keys))
        first, number = next(iter(numbers.items()))
        for name, other in numbers.items():
            if other != number:
                wanted = f"of as many clients as {first}, {number}"
                raise ValueError(checks.message(name, wanted, other))
        is_split = self._axis_name is not None and not callable(updates)
        devices = lax.axis_size(self._axis_name) if is_split else 1
        needed = self._codec.needed_clients
        if number * devices < needed:
            wanted = f"of at least {needed} clients, who bring the noise"
            raise ValueError(checks.message("updates", wanted, number * devices))
        if not number:
            nobody = jnp.zeros([1], bool)
            weights = None if weights is None else jnp.zeros([1], jnp.float32)
            return JaxCohort(self._layout.zeros(clients=1), None, nobody, weights, 1)
        if callable(updates):
            updates = self._checked(updates, jax.config.jax_enable_x64, has_aux)
        return JaxCohort(updates, keys, mask, weights, number)

    def _checked(self, updates: Updates, is_wide: bool, has_aux: bool) -> Updates:
        """A function for updates that computes in its program's types, checked."""

        def checked(places: Array) -> tuple[Any, Any]:
            with jax.enable_x64(is_wide):
                made = updates(places)
            own, aux = made if has_aux else (made, None)
            number = self._layout.clients(own)
            if number != len(places):
                wanted = f"of as many clients as their places, {len(places)}"
                raise ValueError(checks.message("updates", wanted, number))
            return own, aux

        return checked

    def _sums(
        self,
        steps: round_functions.RoundFunctions,
        state: Fields,
        shared: Fields,
        cohort: JaxCohort,
    ) -> tuple[Any, Fields, Any]:
        """The sums of the clients' messages, scalars and aux, over all devices."""
        codec, secret, first = self._codec, None, 0
        if codec.has_private_randomness:
            secret = steps.drawn(state, seed_domains.RoundDomain.CLIENT)
        if self._axis_name is not None and not cohort.is_shared:
            first = lax.axis_index(self._axis_name) * cohort.number

        def client(
            place: Array, update: Update, key: Any, weight: Any
        ) -> tuple[Any, Fields]:
            vector = self._layout.flatten(update, codec.input_length)
            if weight is not None:
                vector = vector.at[-1].set(weight)
            seed = secret
            if secret is not None:
                words = () if key is None else (key[i] for i in range(len(key)))
                seed = randomness.fold_in(secret, first + place, *words)
            message, sums = steps.encode_vector(vector, shared, seed)
            return codec.accumulate(codec.zero(), message), sums

        def present(is_there: Array, tree: Any) -> Any:
            def one(each: Array) -> Array:
                shape = [len(each), *[1] * (each.ndim - 1)]
                return jnp.where(jnp.reshape(is_there, shape), each, 0)

            return jax.tree.map(one, tree)

        def chunk(places: Array) -> tuple[Any, Any]:
            (updates, aux), own, is_there = cohort.at(places)
            parts, rows = jax.vmap(client)(places, updates, *own)
            parts, rows, aux = present(is_there, (parts, rows, aux))
            total = jax.tree.map(lambda part: jnp.sum(part, 0, part.dtype), parts)
            return codec.reduce_modulo(total), (rows, aux)

        return cohorts.sums(
            chunk, codec, cohort, self._clients_at_once, self._axis_name
        )


def jax_aggregator(
    mechanism: mechanisms.Mechanism,
    template: Update,
    *,
    output: str = "mean",
    measure: Optional[str] = None,
    weighted: bool = False,
    axis_name: Optional[str] = None,
    clients_at_once: Optional[int] = None,
    **options: Any,
) -> JaxAggregator:
    """The aggregator of a mechanism for a training loop in JAX.

    Its `init` makes a state, and its `update` executes a round, inside `jax.jit`,
    `lax.scan` and `jax.shard_map` too. 64-bit types, which it needs, are on inside of
    it alone.

    Args:
      mechanism: A configuration from `dpfl.mechanisms.MECHANISMS`. Numbers that are
        "auto" are chosen as by `dpfl.make_codec`.
      template: An update, or a model, as a pytree of float arrays, or of their shapes
        and dtypes.
      output: As for `dpfl.aggregator`: "mean" or "sum".
      measure: As for `dpfl.aggregator`: None, "released" or "exact_for_simulation".
      weighted: Whether `update` takes weights, which only `NoMechanism` allows.
      axis_name: Name of the axis of devices of `jax.shard_map` over which the clients
        are distributed, as many to each; None for clients on one device. If `updates`
        is a function, it and all arguments beside it are of all clients on each device,
        and the chunks are dealt to the devices in turn. The states of a codec's loops
        are not annotated by device, so it needs `check_vma=False`.
      clients_at_once: The most clients whose updates are encoded at once, in as much
        memory; by default so many that their updates have 2**20 numbers on a processor,
        as `jax.default_backend()` says, and 2**25 elsewhere. The result has the same
        bits.
      **options: Options of the codec's class, as for `dpfl.aggregator`.

    Raises:
      TypeError: If `mechanism` is not a configuration from the table, its codec does
        not have an option, or a leaf of the template is not a float array.
      ValueError: If there is no such output or measure, the template has no numbers, or
        the mechanism cannot give, measure or weight this.
    """
    output = checks.choice("output", output, round_functions.OUTPUTS)
    mechanism.check_measure(measure)
    if clients_at_once is not None:
        clients_at_once = checks.integer("clients_at_once", clients_at_once)
    if weighted:
        round_functions.check_weighted(mechanism, output)
        options["weighted"] = True
    layout = TreeLayout(template)
    with jax.enable_x64(True):
        codec = codecs.make_codec(mechanism, layout.dimension, "jax", **options)
    round_functions.check_output(output, codec)
    return JaxAggregator(
        codec,
        layout,
        identity=mechanism.identity,
        axis_name=axis_name,
        clients_at_once=clients_at_once,
        output=output,
        measure=measure,
        released_measurements=mechanism.released_measurements,
    )


def _check_entropy(entropy: Any, others: Any) -> None:
    wanted = "uint32[4] of `entropy()`, since the state has no seed"
    if entropy is None or jnp.shape(entropy) != (4,) or entropy.dtype != np.uint32:
        raise ValueError(checks.message("entropy", wanted, entropy))
    if not isinstance(entropy, jax.core.Tracer):
        _refuse_constant(others)


def _refuse_constant(others: Any = None) -> None:
    """Raises ValueError within a compiled function, or if something is traced."""
    # Within a compiled function a new array is traced; functions hide others.
    leaves = [*jax.tree.leaves(others), jnp.zeros([])]
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        wanted = "an argument of the compiled function, or it repeats its noise"
        raise ValueError(checks.message("entropy", wanted, "a constant"))


def _drawn() -> np.ndarray:
    return np.frombuffer(secrets.token_bytes(16), np.uint32)


def _is_wide(array: Any) -> bool:
    return array.dtype.itemsize == _WIDE


def _narrow(fields: Fields) -> dict[str, Any]:
    """Arrays of 64 bits as uint32[..., 2], for programs of 32-bit types."""
    return jax.tree.map(
        lambda part: (
            lax.bitcast_convert_type(part, jnp.uint32) if _is_wide(part) else part
        ),
        dict(fields),
    )


def _widen(state: Mapping[str, Any], types: Fields) -> Fields:
    """Inverts `_narrow`, for arrays of known types; ValueError for another state."""

    def widened(kind: Any, part: Any) -> Array:
        part, shape, dtype = jnp.asarray(part), kind.shape, kind.dtype
        if _is_wide(kind):
            shape, dtype = (*shape, 2), jnp.uint32
        if part.shape != shape or part.dtype != dtype:
            wanted = f"one of this mechanism, with {dtype}{list(shape)} in this place"
            raise ValueError(checks.message("state", wanted, part))
        return lax.bitcast_convert_type(part, kind.dtype) if _is_wide(kind) else part

    if set(state) != set(types):
        wanted = f"one of this mechanism, with {sorted(types)}"
        raise ValueError(checks.message("state", wanted, sorted(state)))
    return collections.OrderedDict(
        (name, jax.tree.map(widened, kind, state[name])) for name, kind in types.items()
    )
