# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The server of a training loop of any kind, in numpy: cohorts, rounds and ledger.

    server = dpfl.Server(mechanism, plan, template, delta=1e-5, epsilon=8)
    while server.rounds_left:
        now = server.begin_round()
        for client in now.clients:
            data = dpfl.encode(server.mechanism, update_of(client), now.message)
            server.add(client, data)
        model = stepped(model, server.end_round().mean)
        saved = server.save()

Messages may come from anybody: those that no client of the round can have sent add
nothing, and are counted.
"""

from __future__ import annotations

import collections
import dataclasses
import secrets
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from dpfl import checks, codecs, files, mechanisms, planning
from dpfl.arrays import in_numpy, philox
from dpfl.codecs import build, round_functions
from dpfl.codecs.base import Fields
from dpfl.loops import wire
from dpfl.loops.open_round import REFUSALS, OpenRound
from dpfl.loops.saved import Saved
from dpfl.planning.ledger import Again
from dpfl.privacy_coverage import MARK, RELEASED
from dpfl.seed_domains import RoundDomain
from dpfl.training import selection

# Sums over clients that follow from their messages.
_KNOWN_SUMS = ("clients", "nonfinite_clients")


class Round(NamedTuple):
    """A round that has begun.

    Attributes:
      number: Its number, from 1 on.
      clients: Its clients; integers from 0 to before N if the plan drew them.
      message: The bytes that each of them is sent, besides the model.
    """

    number: int
    clients: list[Any]
    message: bytes


class RoundRelease(NamedTuple):
    """A released round.

    Attributes:
      mean: The mean update: arrays of numpy in the structure, shapes and dtypes of the
        template; float32[d] for a template that is a length.
      metrics: Numbers by name. `exact_clients`, whose messages were added, and
        `exact_refused_<reason>` for each of `REFUSALS` are counts that epsilon does not
        cover; the others are made of the release and of public numbers.
      epsilon: Of all releases so far, with this one.
    """

    mean: wire.Update
    metrics: dict[str, float]
    epsilon: float


class Server:
    """Rounds of a mechanism: cohorts, messages, releases, ledger and saved states.

    A secure sum is simulated if messages come by `add`: whoever holds this object could
    see each of them. For a real one there are `dpfl.encode_integers` and `add_sum`.

    Attributes:
      mechanism: The mechanism with all of its numbers, as clients need it.
      plan: The choice of clients.
      dimension: Length d of a flattened update.
      ledger: The `dpfl.Ledger`. It has each round before its release.
    """

    def __init__(
        self,
        mechanism: mechanisms.Mechanism,
        plan: mechanisms.Participation,
        template: Union[int, wire.Update],
        *,
        delta: float = 1e-5,
        epsilon: Optional[float] = None,
        path: Optional[files.PathLike] = None,
        seed: Optional[int] = None,
        state: Optional[bytes] = None,
    ):
        """Begins a run, or goes on with one.

        Args:
          mechanism: The mechanism.
          plan: The choice of clients over the run.
          template: The length d of updates that are vectors, or an update: float arrays
            of any library that numpy takes, or mappings, lists and tuples of them.
          delta: In (0, 1).
          epsilon: A budget over all rounds, above 0. Numbers that are "auto" are chosen
            and the noise is calibrated for it, and no round is begun that exceeds it.
            None for the mechanism as it is.
          path: The ledger's file, for a loop that may be killed between a release and
            the saving of a state; see `dpfl.Ledger`.
          seed: None for noise and cohorts of the operating system's entropy, as a
            release wants them. A whole number below 2**126, for simulations that are to
            be repeated: a round that is done again with other updates releases their
            difference without noise. The clients' draws follow from the `secret` of
            `dpfl.encode`.
          state: The result of `save`, beside the arguments of the run that it is from.

        Raises:
          TypeError: If `mechanism` is not a configuration from the table, `plan` is no
            participation, or an array of the template is not of floats.
          ValueError: If an argument is out of range, the mechanism cannot run so, or a
            state or a file is damaged or that of another run.
          dpfl.CalibrationError: If no noise meets the budget.
        """
        build.check(mechanism)
        mechanism.check_measure(RELEASED)
        self.plan = checks.instance(mechanisms.Participation)("plan", plan)
        delta = checks.delta("delta", delta)
        if epsilon is not None:
            epsilon = checks.positive("epsilon", epsilon)
        self._layout = wire.UpdateLayout(template)
        self.dimension = self._layout.dimension
        about = {
            **{"mechanism": mechanism.identity, "template": self._layout.text},
            **{"participation": plan.name_in_digests, **dataclasses.asdict(plan)},
        }
        # Everything that the draws of a seed depend on, and the state besides.
        self._run = files.digest(about)
        more = {"delta": delta, "epsilon": epsilon, "has_journal": path is not None}
        self._about = files.digest({**about, **more})
        if state is None:
            numbers = self._chosen(mechanism, delta, epsilon)
            secret = secrets.randbits(selection.SEED_BITS) if seed is None else seed
            saved = Saved({}, numbers, selection.run_key(secret, self._run))
        else:
            saved = Saved.of(state, self._about)
        self._numbers = saved.numbers
        self.mechanism = dataclasses.replace(mechanism, **saved.numbers)
        self._codec = codecs.make_codec(self.mechanism, self.dimension)
        wanted = f"one that sums nothing of clients but {', '.join(_KNOWN_SUMS)}"
        is_known = set(self._codec.needed_sums) <= set(_KNOWN_SUMS)
        checks.require(is_known, "mechanism", wanted, mechanism.name)
        self._steps, self._state = self._begun(seed, saved.arrays)
        self._key, self._draws = saved.key, saved.draws
        # Cohorts that the plan did not draw, by the rounds' indices.
        first = self._done + saved.begun - len(saved.cohorts)
        self._cohorts = dict(enumerate(map(list, saved.cohorts), first))
        self._open: Optional[OpenRound] = None
        run = self.plan, self.dimension
        self.ledger = planning.Ledger(
            self.mechanism, *run, delta, target_epsilon=epsilon, path=path
        )
        self._resume(path, saved.lost)
        self._refused: collections.Counter[str] = collections.Counter()

    def _chosen(
        self, given: mechanisms.Mechanism, delta: float, epsilon: Optional[float]
    ) -> dict[str, Any]:
        """The fields of the mechanism that a new run chooses."""
        run = self.plan, self.dimension
        if epsilon is None:
            settled = planning.resolve(given, *run, delta=delta).logged()
        else:
            settled = planning.calibrate(given, *run, epsilon, delta)
        own, asked = dataclasses.asdict(settled), dataclasses.asdict(given)
        return {name: own[name] for name in own if own[name] != asked[name]}

    def _begun(
        self, seed: Optional[int], arrays: Mapping[str, np.ndarray]
    ) -> tuple[round_functions.RoundFunctions, Fields]:
        """The functions of a round, and the state before the next one."""
        words: Any = arrays.get("seed")
        if seed is not None:
            about = f"{self._run}:{self.mechanism.identity}"
            given = np.array(philox.seed_from_int(seed, about), np.int64)
            is_same = not arrays or np.array_equal(words, given)
            checks.require(is_same, "seed", "that of the state", seed)
            words = given
        steps = round_functions.RoundFunctions(
            self._codec,
            in_numpy.fresh_seed if words is None else None,
            measure=RELEASED,
            released_measurements=self.mechanism.released_measurements,
        )
        state = steps.first_state(words)
        if arrays:
            kinds = {name: (part.dtype, np.shape(part)) for name, part in state.items()}
            found = {name: (part.dtype, part.shape) for name, part in arrays.items()}
            checks.require(found == kinds, "state", "of this mechanism", found)
            state = collections.OrderedDict((name, arrays[name]) for name in state)
        return steps, state

    def _resume(self, path: Optional[files.PathLike], lost: int) -> None:
        """Takes the ledger to the rounds of the state."""
        done, cohorts = self._done, []
        if path is None:
            self.ledger.again = Again(whole=lost)
            cohorts = [self._names(r) for r in range(self.plan.known_from(done), done)]
        else:
            wanted = f"the ledger of at least {done} rounds that the state is from"
            found = self.ledger.rounds
            checks.require(found >= done, "path", wanted, found)
        self._lose()
        self.ledger.resume_at(done, cohorts)

    def _lose(self) -> None:
        """Charges for releases that no state has, whose rounds are to be done again.

        Where other rounds have cohorts of their own, so have these, which the ledger
        charges less for. Without a release a round keeps its clients, however often it
        begins: were they drawn again until enough of them report, those that do would
        be in it more often than the plan says.
        """
        if self.ledger.rounds > self._done:
            self.ledger.resume_at(self._done)
            # Its charge was for the round as it was.
            self._open = None
            self._cohorts.pop(self._done, None)

    @property
    def _done(self) -> int:
        """The number of rounds that were released."""
        return int(self._state["round"])

    def _names(self, index: int) -> list[Any]:
        """The clients of a past round."""
        if self._draws:
            return self._select(index)
        return self._cohorts[index]

    def _select(self, index: int) -> list[int]:
        key = self._key
        if self.plan.draws_afresh and "seed" not in self._state:
            # As many cohorts as releases, however often the process begins again.
            key = selection.run_key(key, f"{self._run}:{sum(self.ledger.again)}")
        return selection.select_cohort(self.plan, key, index).tolist()

    @property
    def rounds_left(self) -> int:
        """The number of further rounds that the plan and the budget allow."""
        return self.ledger.rounds_left

    @property
    def modulus_bits(self) -> dict[str, int]:
        """b of each array of `dpfl.encode_integers`; empty if the server is trusted."""
        return dict(self._codec.modulus_bits)

    def begin_round(self, clients: Optional[Iterable[Hashable]] = None) -> Round:
        """Begins a round; one that is open is given up.

        A round that was given up has the same clients when it begins again. If its sum
        was opened that is charged for, and its clients are drawn anew where those of
        each round are.

        Args:
          clients: The round's clients by names, numbers or strings, that stay the same,
            for loops that choose them as the plan says; the ledger refuses what is
            beyond doubt no such choice. None for clients that the plan draws. Where the
            choice amplifies privacy a state that is saved now has them.

        Raises:
          TypeError: If the clients are no names.
          ValueError: If no round is left, the ledger refuses these clients, or clients
            are given in some rounds and drawn in others, or not given for `FixedSize`,
            or the round began with other ones.
        """
        done, draws = self._done, clients is None
        is_same = self._draws in (None, draws)
        wanted = "given in each round or in none"
        checks.require(is_same, "clients", wanted, clients)
        # A sum may have been opened of which there was no release.
        self._lose()
        self.ledger.check_room(done + 1)
        if clients is None:
            is_drawn = type(self.plan) is not mechanisms.FixedSize
            wanted = "one that draws clients, where none are given"
            checks.require(is_drawn, "plan", wanted, self.plan)
            clients = self._select(done)
        names = self.ledger.check_round(clients) or []
        if not all(isinstance(name, (int, float, str)) for name in names):
            raise TypeError(checks.message("clients", "numbers or strings", names))
        if not draws and self.plan.are_rounds_secret:
            begun = self._cohorts.setdefault(done, names)
            wanted = "those that the round began with"
            checks.require({*begun} == {*names}, "clients", wanted, names)
        seed = self._steps.drawn(self._state, RoundDomain.BROADCAST)
        broadcast = self._steps.broadcast(self._state, seed)
        shared = self._steps.prepared_by(broadcast, seed)
        self._draws = draws
        self._open = OpenRound(names, shared, self._codec)
        return Round(done + 1, names, wire.pack(broadcast, self._codec, {}))

    def add(self, client: Hashable, message: wire.Data) -> bool:
        """Adds a client's message to the sum of the open round.

        Args:
          client: The client's name, as in `Round.clients`; the loop's transport must
            have made sure who it is.
          message: The result of `dpfl.encode`, or any bytes.

        Returns:
          Whether it was added. If not, nothing has changed but a count under
          `RoundRelease.metrics`.
        """
        refusal = "late"
        if self._open is not None:
            refusal = self._open.refusal(client, message)
        self._refused.update([refusal] if refusal else [])
        return not refusal

    def add_sum(self, total: Mapping[str, Any], clients: int) -> None:
        """Adds the opened sum of clients' integers, which the ledger then has.

        It is the one sum of its round, which has no other messages: whoever sees two
        sums sees each of them with less noise.

        Args:
          total: Integer arrays by name, the sums over clients of
            `dpfl.encode_integers`, modulo 2^b with b of `modulus_bits` or not reduced.
          clients: How many clients are in the sums, no fewer than bring the noise.

        Raises:
          TypeError: If the arrays are not of integers.
          ValueError: If the mechanism's server is trusted with messages, or helpers
            bring the noise, whose sum has none; if no round is open, or one that has
            messages; if the names or shapes are others, or there are too few clients or
            more than in the round.
        """
        wire.check_sums_securely(self.mechanism)
        source = getattr(self.mechanism, "noise_source", "clients")
        is_noised = source == "clients"
        checks.require(is_noised, "noise_source", "'clients' for such a sum", source)
        now, least = self._opened(), max(self._codec.needed_clients, 1)
        wanted = "called once a round, and without add"
        checks.require(not now.number, "add_sum", wanted, now.number)
        most = len(now.clients)
        clients = checks.integer("clients", clients, least, most, "those of the round")
        own = now.residues(total)
        self._record()
        now.total = self._codec.merge(now.total, own)
        now.number += clients

    def end_round(self) -> RoundRelease:
        """Releases the open round, which the ledger has before there is its noise.

        Raises:
          ValueError: If no round is open, fewer clients reported than bring the noise,
            or the ledger refuses the round. It then stays open.
        """
        now, codec = self._opened(), self._codec
        wanted = f"at least {codec.needed_clients}, who bring the noise"
        checks.require(
            now.number >= codec.needed_clients, "clients", wanted, now.number
        )
        epsilon = self._record()
        sums = dict(zip(_KNOWN_SUMS, (np.float64(now.number), np.float64(0))))
        total = codec.reduce_modulo(now.total)
        made = self._steps.finish(self._state, now.shared, total, Fields(sums))
        mean = self._layout.restore(made["result"])
        done = self._done
        if not self._draws:
            self._cohorts[done] = list(now.clients)
            first = self.plan.known_from(done + 1)
            self._cohorts = {r: own for r, own in self._cohorts.items() if r >= first}
        metrics = {name: float(part) for name, part in made["measurements"].items()}
        metrics[f"{MARK}clients"] = float(now.number)
        for reason in REFUSALS:
            metrics[f"{MARK}refused_{reason}"] = float(self._refused[reason])
        self._state, self._open = made["state"], None
        self._refused.clear()
        return RoundRelease(mean, metrics, epsilon)

    def _opened(self) -> OpenRound:
        if self._open is None:
            raise ValueError("round must be open, as after begin_round, found none")
        return self._open

    def _record(self) -> float:
        """Records the open round once, before its sum is opened or released."""
        now = self._opened()
        if now.epsilon is None:
            now.epsilon = self.ledger.record_round(list(now.clients))
        return now.epsilon

    def save(self) -> bytes:
        """The state after the last release, from which a `Server` goes on.

        A round that is open is not in it. It is as secret as the data: it has who takes
        part, and the seeds of correlated noise that was released. It has no noise that
        was not, and no seed of any to come unless `seed` was given.
        """
        done, lost = self._done, sum(self.ledger.again)
        more = self.ledger.rounds - done
        known = [r for r in sorted(self._cohorts) if r < done or not more]
        # An opened sum without a release is charged when the round begins again.
        saved = Saved(
            arrays=self._state,
            numbers=self._numbers,
            key=self._key,
            draws=self._draws,
            cohorts=[self._cohorts[r] for r in known],
            lost=lost + more,
            begun=int(done in known),
        )
        return saved.to_bytes(self._about)
