# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The `slow` marker, and one TFF worker for the whole test session.

A test is slow if it uses the worker, or is in one of the folders, files, functions or
parametrisations below: those that start programs, load data sets, build wheels and
sites, check the whole tree, or take longer than a second. Every other test is in the fast tier, `-m "not slow"`.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

# Tests run side by side, and a thread of OpenBLAS that has to wait for its turn keeps a
# processor busy: with two threads in each process the matrices of tests take three times
# the processor time. Programs that tests start inherit this; numpy reads it once.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

TESTS = Path(__file__).resolve().parent
SLOW = (
    "experiments",
    "package",
    "tasks",
    "audits/test_streams.py::test_a_run_is_one_release_for_each_turn",
    "audits/test_streams.py::test_all_turns_of_a_client_at_once",
    "audits/test_streams.py::test_missing_noise_is_found_out",
    "test_docs.py",
    "test_style.py",
    "training/test_isolation.py",
    "training/test_neighbours.py",
    "training/test_remote_workers.py",
    "training/test_worker.py",
    # They compute for several seconds.
    "accounting/test_audit.py::test_broken_mechanisms_are_caught",
    "accounting/test_audit.py::test_claims_are_above_what_is_found",
    "accounting/test_calibration.py::test_monotone_in_the_target",
    "accounting/test_calibration.py::test_tight_with_sampling",
    "accounting/test_gaussian.py::test_a_projected_gaussian_is_as_private_as_a_plain_one",
    "accounting/test_gaussian.py::test_little_noise_does_not_exhaust_memory",
    "accounting/test_integer_noise.py::TestDiscreteGaussian"
    "::test_unaffordable_counts_use_fewer_shares_or_the_bound",
    "accounting/test_sampled_gaussian.py::test_forty_digits_and_rounded_up",
    "factorization/test_optimal.py::test_acceleration_finds_the_same_in_fewer_iterations",
    "planning/test_comparison.py::test_tight_needs_less_noise",
    "vectors/test_adaptive_sketch.py::TestExpand::test_probes_see_every_direction_alike",
    "vectors/test_adaptive_sketch.py::test_orthonormal_after_a_thousand_updates",
    "vectors/test_adaptive_sketch.py"
    "::test_without_probes_gradients_within_change_no_subspace",
    # They compute, or draw, for more than a second where the machine is quiet. A formula
    # that is held here by one set of parameters is held in the fast tier by another, or
    # by a test of fewer draws.
    "accounting/test_calibration.py::TestNoiseThatThereIsNot"
    "::test_the_answer_is_found_on_the_side_that_exists",
    "accounting/test_calibration.py"
    "::test_a_budget_that_no_order_and_no_loss_distribution_can_show",
    "accounting/test_calibration.py::test_auto_is_rdp_where_nothing_tighter_is_proven",
    "accounting/test_distributed.py::TestExactBound::test_monotone",
    "accounting/test_gaussian.py::test_pld_is_never_below_the_exact_epsilon",
    "accounting/test_gaussian.py::test_sampled_gaussians_use_dp_accountings_losses",
    "accounting/test_stopped_martingale.py::TestEpsilon",
    "accounting/test_stopped_martingale.py::test_finer_steps_only_lower_the_bound",
    "accounting/test_sampled_gaussian.py"
    "::test_accountant_agrees_with_dp_accounting[0.7-0.02]",
    "accounting/test_sampled_gaussian.py"
    "::test_accountant_agrees_with_dp_accounting[0.7-0.5]",
    "aggregators/test_csgm.py::TestCodec::test_is_unbiased",
    "aggregators/test_csgm.py::TestCodec"
    "::test_mean_squared_error_is_the_formula[0.1-0.3-1024-hadamard]",
    "aggregators/test_csgm.py::TestCodec"
    "::test_mean_squared_error_is_the_formula[0.1-0.3-700-dft]",
    "aggregators/test_csgm.py::TestCodec"
    "::test_noise_is_gaussian_of_the_accounted_size[dft]",
    "aggregators/test_distributed.py::TestAdaptiveClip"
    "::test_noise_on_the_count_is_the_accounted_one",
    "aggregators/test_distributed.py::TestCodec"
    "::test_a_message_is_one_rounding_of_the_clipped_rotated_update[12]",
    "aggregators/test_distributed.py::TestCodec"
    "::test_helpers_noise_does_not_depend_on_who_joins",
    "aggregators/test_distributed.py::TestCodec"
    "::test_mean_squared_error_is_the_formula[12]",
    "aggregators/test_distributed.py::TestCodec"
    "::test_noise_is_what_the_event_says[16-ddg]",
    "aggregators/test_distributed.py::TestCodec"
    "::test_noise_is_what_the_event_says[16-skellam]",
    "aggregators/test_distributed.py::TestCodec"
    "::test_noise_is_what_the_event_says[7-ddg]",
    "aggregators/test_distributed.py::TestCodec"
    "::test_the_survivors_noise_is_the_promised_one",
    "aggregators/test_dome.py::TestDdg::test_noise_and_debiasing_are_the_configs",
    "aggregators/test_dome.py::TestNoise"
    "::test_debiasing_takes_the_noise_out_of_the_second_moment",
    "aggregators/test_dome.py::TestNoise"
    "::test_error_is_the_noise_where_the_sketch_holds_the_updates",
    "aggregators/test_gaussian.py::TestCodec"
    "::test_noise_on_the_count_is_the_accounted_one",
    "aggregators/test_gaussian.py::TestCodec"
    "::test_noises_of_update_and_count_are_independent",
    "aggregators/test_integer_audit.py::test_missing_noise_is_found_out",
    "aggregators/test_integer_audit.py::test_the_codec_stays_below_its_claim",
    "aggregators/test_matrix_factorization.py"
    "::test_noise_of_the_sum_of_results_is_that_of_b[band-low-rank-momentum]",
    "aggregators/test_matrix_factorization.py"
    "::test_noise_of_the_sum_of_results_is_that_of_b[band-low-rank-prefix]",
    "aggregators/test_matrix_factorization.py"
    "::test_noise_of_the_sum_of_results_is_that_of_b[honaker-full-momentum]",
    "aggregators/test_matrix_factorization.py"
    "::test_noise_of_the_sum_of_results_is_that_of_b[honaker-full-prefix]",
    "aggregators/test_matrix_factorization.py::test_sgmf_is_unbiased",
    "aggregators/test_matrix_factorization.py"
    "::test_the_epochs_noise_is_a_function_of_its_seed",
    "experiments/papers/test_measured_means.py::test_errors_are_the_theory_s",
    "experiments/papers/test_measured_means.py"
    "::test_errors_of_a_trusted_server_are_the_theory_s[l2_csgm]",
    "aggregators/test_sketch.py::TestBoth"
    "::test_error_is_the_formula_for_equal_updates[hashes-central]",
    "aggregators/test_sketch.py::TestBoth"
    "::test_error_is_the_formula_for_equal_updates[hashes-ddg]",
    "aggregators/test_sketch.py::TestBoth"
    "::test_error_is_the_formula_for_equal_updates[shifts-ddg]",
    "aggregators/test_sketch.py::TestSketchedDdg"
    "::test_thresholding_keeps_the_large_coordinates",
    "aggregators/test_sketch.py::TestSketchedDdg"
    "::test_what_is_held_back_stays_below_the_threshold",
    "aggregators/test_sketch.py::TestSparseRecovery::test_a_hostile_client_is_held",
    "aggregators/test_sketch.py::TestSparseRecovery"
    "::test_recovers_sparse_means_better_than_the_noise_on_all",
    "planning/test_choice.py::TestCurve::test_points",
    "planning/test_choice.py::TestIssue::test_large_cohorts_are_calibrated_and_refused",
    "planning/test_comparison.py"
    "::test_a_budget_that_no_noise_meets_names_the_mechanism",
    "mechanisms/test_distributed.py::TestAll::test_calibrates[distributed_skellam]",
    "mechanisms/test_gaussian.py"
    "::test_a_count_that_leaves_room_for_less_noise_is_calibrated",
    "planning/test_ledger.py::test_not_even_one_round",
    "mechanisms/test_noise_stream.py::TestTwoEnds::test_one_diagonal_is_poisson_sampling",
    "planning/test_remarks.py::test_fifty_is_not_remarked_on_and_more_is",
    "planning/test_remarks.py"
    "::test_the_noise_that_it_names_meets_eight_and_hardly_less[mechanism0]",
    "planning/test_remarks.py::test_where_no_noise_does_it_says_so",
    "experiments/papers/test_secure_sums.py"
    "::test_the_exact_accountant_saves_bits_where_noise_is_about_a_step",
    "training/test_plan.py::test_a_stream_over_the_run_has_the_runs_rounds"
    "[cyclic_poisson-sgmf]",
    "training/test_plan.py::test_a_stream_over_the_run_has_the_runs_rounds"
    "[once_per_epoch-sgmf]",
    "noise_streams/test_streams.py::test_another_seed_and_another_row_are_independent",
    "noise_streams/test_streams.py::test_any_row_can_be_had_again_with_the_same_bits",
    "noise_streams/test_streams.py"
    "::test_covariance_is_that_of_b_times_its_transpose[honaker-full]",
    "noise_streams/test_streams.py"
    "::test_covariance_is_that_of_b_times_its_transpose[honaker-online]",
    "noise_streams/test_streams.py"
    "::test_covariance_is_that_of_b_times_its_transpose[optimal-prefix-sum]",
    "noise_streams/test_streams.py::test_redrawn_rows_are_the_remembered_ones",
    "noise_streams/test_streams.py::test_the_block_does_not_change_the_noise",
    "noise_streams/test_streams.py::test_there_is_no_row_after_the_last",
    "training/test_report.py::test_before_the_run",
    "vectors/test_gaussian_sketch.py::test_lasso_agrees_with_scikit_learn",
    "vectors/test_integers.py::TestOverlapRotation::test_spreads",
    "accounting/test_banded_stream.py::test_the_best_bands_are_between_the_ends",
    "accounting/test_stopped_martingale.py"
    "::test_the_exponent_is_convex_in_the_time_and_rises_with_what_is_kept",
    "accounting/test_stopped_martingale.py"
    "::TestClock::test_many_small_coordinates_act_as_their_mean",
    "accounting/test_rounding.py::TestValues::test_far_below_the_convolution_bound",
    "aggregators/test_csgm.py::TestCodec"
    "::test_mean_squared_error_is_the_formula[1.0-0.3-700-hadamard]",
    "aggregators/test_dome.py::TestDdg::test_it_agrees_with_dome_as_bits_grow",
    "aggregators/test_dome.py::TestRound::test_adam_is_numpys[False]",
    "aggregators/test_matrix_factorization.py"
    "::test_tree_has_the_variance_of_tensorflow_privacys",
    "aggregators/test_matrix_factorization.py"
    "::test_without_noise_the_sum_of_results_is_the_workload",
    "experiments/papers/test_measured_means.py"
    "::test_errors_of_a_trusted_server_are_the_theory_s[gaussian]",
    "aggregators/test_registry.py::test_type_signatures",
    "aggregators/test_sketch.py::TestSketchedDdg"
    "::test_thresholding_delays_and_loses_nothing",
    "planning/test_choice.py::TestBits",
    "planning/test_comparison.py::test_calibrated_meets_the_budget_closely[gaussian]",
    "planning/test_ledger.py::test_the_run_stops_before_the_round_that_would_exceed",
    "vectors/test_masks.py::test_every_pattern_has_its_probability[1]",
    "noise_streams/test_streams.py"
    "::test_covariance_is_that_of_b_times_its_transpose[optimal]",
    "noise_streams/test_streams.py"
    "::test_covariance_is_that_of_b_times_its_transpose[toeplitz]",
    "noise_streams/test_streams.py"
    "::test_covariance_is_that_of_b_times_its_transpose[toeplitz-root]",
    "noise_streams/test_streams.py"
    "::test_covariance_is_that_of_b_times_its_transpose[blt-rational]",
)


def pytest_configure():
    """Lets programs that tests start be interrupted, though this one was told not to be.

    A shell that starts the tests in the background has them ignore SIGINT, and what is
    ignored is inherited.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path, config):
    """Does not even import what the fast tier leaves out."""
    place = (
        collection_path.relative_to(TESTS) if TESTS in collection_path.parents else ""
    )
    is_left_out = config.option.markexpr == "not slow" and str(place) in SLOW
    # None, and not False, leaves the decision to pytest.
    return is_left_out or None


def pytest_collection_modifyitems(items):
    """Marks the slow tests."""
    for item in items:
        name = (
            f"{item.path.relative_to(TESTS).as_posix()}::"
            + (item.nodeid.partition("::")[2])
        )
        is_listed = any(
            name == x or name.startswith((f"{x}/", f"{x}::", f"{x}[")) for x in SLOW
        )
        if is_listed or "tff_worker" in item.fixturenames:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def tff_worker():
    """The running `dpfl.training.worker.Worker`; TFF's default context is on it."""
    from dpfl.training import worker as worker_lib

    with worker_lib.start() as worker:
        yield worker


@pytest.fixture
def tff_context(tff_worker):
    """TFF's default context: the native one."""
    import tensorflow_federated as tff

    context = tff_worker.context()
    tff.framework.set_default_context(context)
    return context


@pytest.fixture
def tff_secure_context(tff_worker):
    """TFF's default context for one test: secure sums are replaced by plain ones."""
    import tensorflow_federated as tff

    tff.framework.set_default_context(tff_worker.context(secure_sums=True))
    yield
    tff.framework.set_default_context(tff_worker.context())
