# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Relations between neighbours: why each is claimed or not, and what is refused."""

import dataclasses
import math

import attr
import dp_accounting
import numpy as np
import pytest
from scipy import stats

from dpfl import accounting, mechanisms
from dpfl.accounting import events, gaussian
from dpfl.accounting.matrix_factorization import banded_stream_event
from tests.accounting.event_names import (
    ADD,
    COMPOSED,
    DRAWN,
    GAUSSIAN,
    ONE,
    POISSON,
    SELF,
    SLOT,
    UNSUPPORTED,
    ZEROS,
)
from tests.refusals import refuses

POISSON_SAMPLING = mechanisms.PoissonSampling(1000, 100, 20)
FIXED = mechanisms.FixedSize(1000, 100, 20)
ONCE = mechanisms.OncePerEpoch(1000, 100, 20)
# Each joins with probability 1; of which nothing follows for whose the noise is.
EVERYBODY = mechanisms.PoissonSampling(100, 100, 20)

NUMBERS = {"cohort_size": 100, "clip_norm": 1.0, "noise_multiplier": 1.0}
INTEGERS = {**NUMBERS, "bits": 16}
DDG = mechanisms.DistributedDiscreteGaussian(**INTEGERS)
HELPED = mechanisms.DistributedSkellam(**INTEGERS, noise_source="helpers")
HELPED_CLIP = dataclasses.replace(HELPED, adaptive_clipping=True)
HELPED_SKETCH = mechanisms.SketchedDdg(
    **INTEGERS, compression_rate=10, noise_source="helpers"
)
GAUSS = mechanisms.Gaussian(100, 1.0, 1.0)
CSGM = mechanisms.L2Csgm(100, 1.0, 1.0, 0.1)
STREAM = mechanisms.MatrixFactorization(10, 100, 1.0, 1.0)
SGMF = mechanisms.Sgmf(**NUMBERS, keep_fraction=0.1, rounds_per_epoch=10)
SKETCH = mechanisms.ProjectAndPerturb(100, 1.0, 1.0, compression_rate=10)
SKETCHED_DDG = mechanisms.SketchedDdg(**INTEGERS, compression_rate=10)
DOME = mechanisms.Dome(100, 1.0, 1.0, sketch_size=8)


class TestRemovalFromAFixedCohort:
    """What the sum of exactly n clients tells about one that is removed.

    All others send the same vector and the client its negative, z = 1, one round. Of N
    clients n = 100 are drawn. With the client there the sum differs by 2 clips if it is
    drawn, probability n/N; without it there are the n others in any case.
    """

    @staticmethod
    def delta(epsilon, probability):
        # Hockey-stick of (1 - p) N(0, 1) + p N(2, 1) from N(0, 1): the likelihood ratio
        # 1 - p + p exp(2 x - 2) is above exp(epsilon) for x above t.
        p = probability
        t = 1 + 0.5 * math.log((math.expm1(epsilon) + p) / p)
        present = (1 - p) * stats.norm.sf(t) + p * stats.norm.sf(t - 2)
        return present - math.exp(epsilon) * stats.norm.sf(t)

    @pytest.mark.parametrize(("population", "truth"), [(101, 9.98), (1000, 6.58)])
    def test_add_or_remove_costs_more_than_zero_out(self, population, truth):
        p = 100 / population
        assert self.delta(truth - 0.01, p) > 1e-5 > self.delta(truth + 0.01, p)
        event = GAUSS.dp_event(mechanisms.FixedSize(population, 100, 1), 10)
        report = accounting.epsilon(event, 1e-5)
        assert report.epsilon == pytest.approx(4.377, abs=1e-3)
        assert report.epsilon < truth - 2
        assert report.relation == "replaced_by_zeros"
        with refuses(UNSUPPORTED, "neighboring_relation", "ADD_OR_REMOVE_ONE"):
            accounting.epsilon(event, 1e-5, relation=ADD)


@pytest.mark.parametrize(
    ("mechanism", "participation", "neighboring_relations"),
    [
        (GAUSS, POISSON_SAMPLING, (ADD, ZEROS)),
        (GAUSS, FIXED, (ZEROS,)),
        (GAUSS, ONCE, (ZEROS,)),
        (CSGM, POISSON_SAMPLING, (ADD, ZEROS)),
        (SKETCH, POISSON_SAMPLING, (ADD, ZEROS)),
        (mechanisms.NoMechanism(100), FIXED, (ZEROS,)),
        (DDG, ONCE, (ZEROS,)),
        (HELPED, POISSON_SAMPLING, (ADD, ZEROS)),
        (HELPED, FIXED, (ZEROS,)),
        (HELPED, EVERYBODY, (ADD, ZEROS)),
        (HELPED_CLIP, EVERYBODY, (ADD, ZEROS)),
        (HELPED_SKETCH, EVERYBODY, (ADD, ZEROS)),
        (DDG, EVERYBODY, (ZEROS,)),
        (SKETCHED_DDG, ONCE, (ZEROS,)),
        (STREAM, ONCE, (ZEROS,)),
        (SGMF, ONCE, (ZEROS,)),
        (DOME, ONCE, (ZEROS,)),
        (mechanisms.DomeDdg(100, 1.0, 1.0, sketch_size=8), ONCE, (ZEROS,)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_run_event_carries_its_relations(
    mechanism, participation, neighboring_relations
):
    event = mechanism.dp_event(participation, 10_000)
    assert (
        event.neighboring_relations
        == mechanism.neighboring_relations(participation)
        == neighboring_relations
    )
    # What is inside must hold for them too, or the event could not be accounted for.
    assert accounting.relations_of(event) == neighboring_relations
    for relation in (ADD, ZEROS, ONE):
        accountant = accounting.DpflAccountant(neighboring_relation=relation)
        assert accountant.supports(event) == (relation in neighboring_relations)
    report = accounting.epsilon(event, 1e-3, accounting_method="rdp")
    assert report.relation == events.NAMES[neighboring_relations[0]]


RUN = accounting.RunDpEvent(SELF(GAUSSIAN(2.0), 3), (ZEROS,))


class TestRunDpEvent:
    def test_composition_is_refused_if_one_part_lacks_the_relation(self):
        accountant = accounting.DpflAccountant([2.0])
        with refuses(UNSUPPORTED, "neighboring_relation", "ADD_OR_REMOVE_ONE"):
            accountant.compose(COMPOSED([GAUSSIAN(1.0), RUN]))
        assert accountant.rdp[0] == 0

    def test_sampling_around_a_run_is_refused(self):
        with pytest.raises(UNSUPPORTED):
            accounting.DpflAccountant().compose(POISSON(0.1, RUN))

    @pytest.mark.parametrize("neighboring_relations", [(), (ADD, ADD), ("add",)])
    def test_bad_relations_are_refused(self, neighboring_relations):
        with refuses(ValueError, "neighboring_relations", neighboring_relations):
            accounting.RunDpEvent(GAUSSIAN(1.0), neighboring_relations)


class TestRelationsOfATree:
    def test_relations_of_a_composition_are_the_common_ones(self):
        both = accounting.RunDpEvent(GAUSSIAN(1.0), (ADD, ZEROS))
        assert accounting.relations_of(both) == (ADD, ZEROS)
        assert accounting.relations_of(COMPOSED([both, RUN])) == (ZEROS,)
        only_add = accounting.RunDpEvent(GAUSSIAN(1.0), (ADD,))
        nothing = COMPOSED([only_add, RUN])
        assert accounting.relations_of(nothing) == ()
        with refuses(UNSUPPORTED, "event", "ComposedDpEvent"):
            accounting.epsilon(nothing, 1e-5)

    def test_a_wrapper_cannot_add_what_its_event_lacks(self):
        integers = accounting.DistributedDiscreteGaussianDpEvent(9, 2.0, 1.0, 4.0, 15)
        run = accounting.RunDpEvent(integers, (ADD, ZEROS))
        assert accounting.relations_of(run) == (ZEROS,)
        with pytest.raises(UNSUPPORTED):
            accounting.epsilon(run, 1e-5, relation=ADD)

    def test_dp_accountings_own_events_keep_their_meaning(self):
        report = accounting.epsilon(GAUSSIAN(1.0), 1e-5)
        assert report.relation == "add_or_remove"
        other = accounting.epsilon(GAUSSIAN(1.0), 1e-5, relation=ONE)
        assert other.relation == "replace_one" and other.accounting_method == "rdp"
        sampled = accounting.epsilon(POISSON(0.1, GAUSSIAN(1.0)), 1e-5, relation=ZEROS)
        assert sampled.relation == "replaced_by_zeros"

    @pytest.mark.parametrize("adapts", [False, True])
    def test_sampling_around_clients_noise_is_refused(self, adapts):
        one = dataclasses.replace(DDG, adaptive_clipping=adapts)
        event = one.round_dp_event(100, 1.0)
        assert event.neighboring_relations == (ZEROS,)
        # Said so, it is noise of helpers: of clients that stay away there is none.
        assert event.poisson_sampled(0.1).neighboring_relations == (ADD, ZEROS)
        assert not accounting.relations_of(POISSON(0.1, event))
        assert accounting.relations_of(POISSON(1.0, event)) == (ZEROS,)
        for relation in accounting.Relation:
            accountant = accounting.DpflAccountant(neighboring_relation=relation)
            assert not accountant.supports(SELF(POISSON(0.1, event), 3))
            with pytest.raises(UNSUPPORTED):
                accounting.epsilon(POISSON(0.1, event), 1e-5, relation=relation)
        helped = dataclasses.replace(one, noise_source="helpers")
        again = POISSON(0.1, helped.round_dp_event(100, 1.0))
        assert accounting.relations_of(again) == (ADD, ZEROS)


@dataclasses.dataclass(frozen=True)
class TopK(mechanisms.NoiseMechanism):
    """A mechanism of somebody else's, whose event carries nothing by itself."""

    name = "of_a_package"

    def round_dp_event(self, dimension, sampling_probability):
        return POISSON(sampling_probability, GAUSSIAN(self.noise_multiplier))

    def mean_squared_error(self, dimension):
        return 0.0


class Shares(TopK):
    """One of which the clients bring the noise, and that knows its base's event."""

    name = "shares"

    def neighboring_relations(self, participation):
        return (ZEROS,)

    def round_dp_event(self, dimension, sampling_probability):
        return super().round_dp_event(dimension, 1.0)


EVERY_MECHANISM = {
    **mechanisms.TEST_CONFIGS,
    **{kind.name: kind(3, 1.0, 0.3) for kind in (TopK, Shares)},
    "helped": HELPED,
}


def left_by(mechanism):
    """The relations of one release, whoever composes it: those of who adds the noise."""
    bring_noise = mechanism.sums_securely and mechanism != HELPED
    return (ZEROS,) if bring_noise or mechanism.name == "shares" else (ADD, ZEROS)


@pytest.mark.parametrize("name", EVERY_MECHANISM)
@pytest.mark.parametrize(
    "composed",
    [
        lambda e: e,
        lambda e: SELF(e, 3),
        lambda e: COMPOSED([SELF(COMPOSED((e, dp_accounting.NoOpDpEvent())), 2)]),
        lambda e: COMPOSED([GAUSSIAN(1.0), e]),
    ],
    ids=["alone", "repeated", "nested", "beside another"],
)
def test_release_keeps_its_relations_under_any_composition(name, composed):
    mechanism = EVERY_MECHANISM[name]
    neighboring_relations = left_by(mechanism)
    assert mechanism.release_relations == neighboring_relations
    event = composed(mechanism.round_dp_event(64, 1.0))
    assert accounting.relations_of(event) == neighboring_relations
    for relation in (ADD, ZEROS, ONE):
        book = accounting.DpflAccountant(neighboring_relation=relation)
        assert book.supports(event) == (relation in neighboring_relations)
        if relation not in neighboring_relations:
            with pytest.raises(UNSUPPORTED):
                accounting.epsilon(event, 1e-5, relation=relation)


@pytest.mark.parametrize("name", EVERY_MECHANISM)
def test_relations_of_sampled_releases(name):
    """Whether the sample is composed around it, or the mechanism is asked for it."""
    mechanism = EVERY_MECHANISM[name]
    neighboring_relations = left_by(mechanism)
    release = mechanism.round_dp_event(64, 1.0)
    twice = (POISSON(0.1, COMPOSED([release, release])), DRAWN(30, 3, release))
    found = [accounting.relations_of(event) for event in twice]
    is_gaussian = name in ("gaussian", "project_and_perturb", "of_a_package", "none")
    assert found == [neighboring_relations if is_gaussian else found[0], ()]
    for event in twice:
        other = accounting.DpflAccountant(neighboring_relation=ONE)
        assert not other.supports(event)
    if ADD in neighboring_relations and not getattr(mechanism, "rounds_per_epoch", 0):
        for event in (POISSON(0.1, release), mechanism.round_dp_event(64, 0.1)):
            assert accounting.relations_of(event) == neighboring_relations
    elif not isinstance(release, events.RdpDpEvent):
        # Those who bring the noise are not sampled.
        assert accounting.relations_of(POISSON(0.1, release)) == ()


def test_event_without_any_relation_is_refused():
    class Silent(TopK):
        def neighboring_relations(self, participation):
            return ()

    with refuses(ValueError, "neighboring_relations", ()):
        Silent(3, 1.0, 0.3).round_dp_event(16, 1.0)
    with refuses(ValueError, "neighboring_relations", ()):
        Silent(100, 1.0, 0.3).dp_event(FIXED, 16)

    @attr.s(frozen=True)
    class Nobodys(accounting.RdpDpEvent):
        neighboring_relations = ()

        def rdp(self, orders):
            return np.zeros(len(orders))

    for relation in (ADD, ZEROS, ONE):
        with pytest.raises(UNSUPPORTED):
            accounting.epsilon(Nobodys(), 1e-5, relation=relation)
        with pytest.raises(UNSUPPORTED):
            accounting.DpflAccountant(None, relation).compose(SELF(Nobodys(), 2))


def test_wrappers_accept_a_release_with_relations_as_a_bare_one():
    release, bare = GAUSS.round_dp_event(10, 1.0), GAUSSIAN(1.0)
    makers = (
        lambda e: gaussian.FixedSizeDpEvent(e, 0.1),
        lambda e: SLOT(e, 3, 4.0),
        lambda e: POISSON(0.1, e),
        lambda e: banded_stream_event(
            e, rounds=8, bands=1, separation=2, sampling_probability=0.1
        ),
    )
    for make in makers:
        relation = accounting.relations_of(make(bare))[0]
        assert accounting.relations_of(make(release))[0] == relation
        for accounting_method in ("rdp", "tight"):
            found, want = (
                accounting.epsilon(make(e), 1e-5, accounting_method=accounting_method)
                for e in (release, bare)
            )
            assert found == want
    theirs = DOME.round_dp_event(10, 1.0)
    for make in makers[:2]:
        with refuses(ValueError, "round_event", "GaussianDpEvent"):
            make(theirs)
    assert accounting.relations_of(makers[-1](theirs)) == ()
