# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The audit is green, and each hole that is put back turns it red by name."""

import math

import numpy as np
import pytest

from dpfl import mechanisms
from dpfl.accounting import events


def audited(mechanism, *words, **settings):
    """Returns the findings of the jobs whose names have one of the words."""
    from experiments.audits import suite

    numbers = {"trials": 200, "rounds_in_tff": 2, "draws": 2_000_000, **settings}
    chosen = suite.Settings(mechanisms=(mechanism,), is_quick=True, **numbers)
    return [
        one
        for name, job in suite.jobs(chosen)
        if not words or any(word in name for word in words)
        for one in job()
    ]


def bad(found):
    return {one.check for one in found if not one.is_sound}


# The line of docs/privacy/audit.md, which a test runs, is of l2_csgm.
@pytest.mark.parametrize(
    "mechanism", ["matrix_factorization", "distributed_discrete_gaussian"]
)
def test_correct_mechanisms_pass(tff_secure_context, mechanism):
    # Whether noise repeats is seen of another mechanism, with the hole put back.
    found = audited(mechanism, "coordinate", "tails", "wraps", "masks")
    assert {"epsilon", "composition"} <= {one.check for one in found}
    assert not bad(found)
    [epsilon] = [one for one in found if one.check == "epsilon"]
    assert epsilon.trials >= 50 and 0 <= epsilon.found < epsilon.claimed


def test_every_private_mechanism_has_runnable_canaries():
    from experiments.audits import cases

    kinds = mechanisms.MECHANISMS.items()
    assert set(cases.CASES) == {name for name, kind in kinds if kind.is_private}
    for name, own in cases.CASES.items():
        for case in own:
            assert case.mechanism.name == name
            assert np.linalg.norm(case.block) == pytest.approx(1)
            case.mechanism.check(case.participation, case.dimension)


def test_an_optimal_test_finds_half_of_the_claim():
    found = audited("gaussian", "coordinate", trials=15_000, rounds_in_tff=0)
    assert not bad(found)
    bound = found[0]
    assert bound.relation == "add_or_remove" and bound.trials >= 15_000
    # What the law of the release has, of which so many trials show most.
    assert 0.6 < bound.ratio < bound.attainable == pytest.approx(1, abs=2e-3)


class TestHolesPutBack:
    """Each of them once was there."""

    def test_noise_without_tails(self, monkeypatch):
        import tensorflow as tf

        from dpfl.codecs import integer_sums

        class BoxMuller:
            """With uniform numbers from 1e-4 on, where float32's are from 1e-7 on."""

            def __init__(self, stddev):
                self.stddev = stddev

            def sample(self, seed, length):
                u, turn = tf.unstack(tf.random.stateless_uniform([2, length], seed))
                size = self.stddev * tf.sqrt(-2 * tf.math.log(tf.maximum(u, 1e-4)))
                return tf.cast(tf.round(size * tf.cos(2 * math.pi * turn)), tf.int32)

        monkeypatch.setattr(integer_sums, "DiscreteGaussian", BoxMuller)
        found = audited("gaussian", "tails")
        assert bad(found) == {"tails"}
        beyond = {one.setting: one for one in found if one.check == "tails"}
        assert beyond["beyond 3 standard deviations"].is_sound
        missing = beyond["beyond 4.5 standard deviations"]
        assert missing.found == 0 and missing.claimed > 10 and not missing.is_sound

    @pytest.mark.parametrize(("share", "check"), [(0.95, "tails"), (0.25, "epsilon")])
    def test_noise_too_small(self, monkeypatch, share, check):
        from dpfl.codecs import integer_sums

        real = integer_sums.DiscreteGaussian
        monkeypatch.setattr(
            integer_sums, "DiscreteGaussian", lambda stddev: real(share * stddev)
        )
        if check == "tails":
            assert "spread" in bad(audited("gaussian", "tails"))
            return
        found = audited("gaussian", "coordinate", trials=2_000, rounds_in_tff=0)
        assert bad(found) == {"epsilon"}

    def test_missing_clipping_is_detected(self, monkeypatch):
        import tensorflow as tf

        from dpfl.codecs import integer_sums

        def unclipped(self, vector, clip_norm):
            steps = vector.unit * self._steps_per_unit(clip_norm)
            return tf.cast(
                tf.round(vector.direction * tf.cast(steps, tf.float32)), tf.int32
            )

        monkeypatch.setattr(integer_sums.IntegerSum, "round", unclipped)
        found = audited("gaussian", "coordinate", trials=2_000, rounds_in_tff=0)
        assert bad(found) == {"epsilon"}

    def test_sums_over_the_integers(self, tff_secure_context, monkeypatch):
        import collections

        import tensorflow_federated as tff

        from dpfl.aggregators import reductions

        def not_modular(bits, *_):
            def reduce(encoded):
                sums = collections.OrderedDict(
                    (name, tff.federated_sum(encoded[0][name])) for name in bits
                )
                return tff.federated_zip((sums, tff.federated_sum(encoded[1])))

            return reduce

        monkeypatch.setattr(reductions, "secure_sums", not_modular)
        found = audited("distributed_discrete_gaussian", "coordinate", "wraps")
        assert {"wraps", "residues", "composition"} <= bad(found)

    def test_adding_and_removing_claimed_for_a_fixed_cohort(self, monkeypatch):
        monkeypatch.setattr(
            mechanisms.FixedSize, "neighboring_relations", events.TRUSTED_RELATIONS
        )
        found = audited("gaussian", "cohort fixed", "cohort poisson")
        assert {one.relation for one in found} == {"add_or_remove"}
        opposite, silent, fixed = found
        assert opposite.is_sound and silent.is_sound
        # Who else joined hides the client, if they send anything.
        assert 0 < opposite.ratio < opposite.attainable < 0.7 < silent.ratio
        assert fixed.verdict == "ABOVE" and fixed.found > fixed.claimed

    def test_noise_that_repeats(self, tff_secure_context, monkeypatch):
        """Two holes, each of which is seen by a pair of runs of its own."""
        from dpfl.mechanisms import mechanism
        from experiments.audits import noise

        monkeypatch.setattr(mechanism.Mechanism, "identity", "")
        monkeypatch.setattr(noise.provenance, "digest", lambda plan: "")
        noise.digest.cache_clear()
        found = audited("gaussian", "repeated noise")
        noise.digest.cache_clear()
        assert bad(found) == {"repeats"}
        same = {one.setting: one.found for one in found if not one.is_sound}
        whole = pytest.approx(np.sqrt(1024), rel=1e-6)
        assert same == {
            "a run and one of another clip": whole,
            "a run and one of another learning rate": whole,
        }

    def test_one_mask_for_all(self, tff_secure_context, monkeypatch):
        from dpfl.aggregators import round_functions

        monkeypatch.setattr(
            round_functions, "_client_seed", lambda own, round_seed: round_seed
        )
        found = audited("l2_csgm", "masks")
        assert [one.verdict for one in found] == ["FAILED", "FAILED"]
        assert bad(found) == {"masks"}

    def test_seeds_that_collide(self, tff_secure_context, monkeypatch):
        from dpfl.arrays import philox

        monkeypatch.setattr(
            philox, "seed_from_int", lambda seed, identity="": (seed % 2**63, 0)
        )
        assert bad(audited("gaussian", "seeds")) == {"seeds"}
