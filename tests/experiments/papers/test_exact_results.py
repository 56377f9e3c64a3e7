# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The page's numbers of figures that train nothing are those of docs/results."""

import pytest

from dpfl import factorization
from experiments.papers import result_rows, secure_sums
from experiments.papers.chen2022 import bits as bits_lib
from experiments.papers.chen2024 import streams as streams_lib
from tests.experiments.papers.test_results import DOCS, text_of
from tools import exact_numbers

BITS = "bits_per_parameter"
PAGE = text_of("figures")


def table(name):
    return result_rows.read_csv(DOCS / f"results/{name}.csv")


def test_losses_of_factorizations():
    found = result_rows.where(table("mf_fig1"), momentum="0.9")
    losses = {row["method"]: float(row["total"]) for row in found}
    online, full, prefix_sum = (
        round(100 * losses["optimal"] / losses[name])
        for name in ("honaker-online", "honaker-full", "optimal-prefix-sum")
    )
    assert f"has {online}% of the loss of Honaker online" in PAGE
    assert f"{full}% of that of Honaker full" in PAGE
    assert f"{prefix_sum}% of that of the optimal prefix sum" in PAGE


def test_seconds_of_solvers():
    accelerated, plain, lbfgs = (
        [f"{seconds:.2g}" for seconds in result_rows.numbers(table("mf_fig4"), column)]
        for column in ("accelerated_seconds", "plain_seconds", "lbfgs_seconds")
    )
    for problem, name in ((0, "the prefix sum"), (1, "β=0.9")):
        first = accelerated[problem]
        said = f"{first}, {plain[problem]} and {lbfgs[problem]} for {name}"
        assert said in PAGE


def test_errors_of_encoders():
    """The page has all of the table, which has what is computed; optimal ones apart."""
    page = (DOCS / "factorization.md").read_text(encoding="utf-8")
    begin = page.index("| | vectors | k = 1 |")
    lines = page[begin : page.index("\n\n", begin)].splitlines()[2:]
    said = [float(cell) for line in lines for cell in line.split("|")[3:-1]]
    found = table("encoders")
    errors = result_rows.numbers(found, "root_mean_error")
    assert said == [float(f"{error:.4g}") for error in errors]
    workload = factorization.prefix_sum(512)
    for row in found:
        if row["method"] == "optimal-epochs":
            continue
        k, b = int(row["participations"]), int(row["separation"])
        several = {"separation": b, "participations": k} if k > 1 else {}
        name = "buffers" if row["method"] == "blt" else "bands"
        parameters = {}
        if row["bands_or_buffers"]:
            parameters[name] = int(row["bands_or_buffers"])
        is_closed = row["method"] == "banded-inverse-root"
        is_banded = row["method"] == "toeplitz" and parameters
        if not is_closed and not is_banded:
            parameters |= several
        computed = factorization.compute(workload, row["method"], **parameters)
        plan = factorization.MinSeparation(b, k)
        expected = float(row["root_mean_error"])
        assert computed.errors(plan).root_mean == pytest.approx(expected, rel=1e-4)


def test_losses_of_the_prefix_sum():
    found = result_rows.where(table("mf_table2"), rounds="256")
    losses = {row["method"]: float(row["loss"]) for row in found}
    over = {name: loss / losses["optimal"] for name, loss in losses.items()}
    assert (
        f"low rank is {over['band-low-rank']:.3f} times the optimal one, that of the "
        f"banded C {over['banded']:.2f}, Toeplitz {over['toeplitz']:.2f}, Honaker full "
        f"{over['honaker-full']:.2f} and Honaker online {over['honaker-online']:.2f} "
    ) in PAGE


@pytest.mark.parametrize("name", ["mean_estimation", "secagg_mean"])
def test_means_are_those_of_the_theory(name):
    for row in table(name):
        found, theory = float(row["squared_error"]), float(row["theory"])
        assert abs(found / theory - 1) < 0.011


def streams():
    """Of each panel and number of rounds, the best stream's bands, and its error over
    that of the other ways; "whole" is that of all bands over independent noise."""
    found = table("sgmf_streams")
    for rate, epsilon in streams_lib.PANELS:
        panel = result_rows.where(found, compression_rate=rate, epsilon=epsilon)
        for rounds in result_rows.distinct(panel, "rounds"):
            errors = {
                (row["method"], row["bands"]): float(row["error"])
                for row in result_rows.where(panel, rounds=rounds)
            }
            bands = min(
                (key for key in errors if key[0] == "stream"), key=errors.__getitem__
            )
            over = {method: errors[bands] / e for (method, _), e in errors.items()}
            over["whole"] = errors["stream", "32"] / errors["stream", "1"]
            yield (rate, epsilon, int(rounds)), int(bands[1]), over


def test_noise_of_streams():
    bands = {key: number for key, number, _ in streams()}
    over = {key: ratios for key, _, ratios in streams()}
    assert all(ratios["epochs"] < 1 + 1e-9 for ratios in over.values())
    below = {k: ratios["random_slot"] for k, ratios in over.items()}
    assert [k for k, ratio in below.items() if ratio > 1] == [(100, 2.0, 2048)]
    assert f"by {below[100, 2.0, 2048] - 1:.1%} at ε=2 after 2048 rounds" in PAGE
    for rate in (1, 100):
        found = [bands[rate, 10.0, rounds] for rounds in (32, 128, 512, 2048)]
        assert found == [32, 32, 16, 12]
    assert "32 bands for few rounds at ε=10, 16 at 512 and 12 at 2048" in PAGE
    low = [(number, over[key]["whole"]) for key, number in bands.items() if key[1] == 2]
    assert [number for number, _ in low] == [4, 4, 4, 6]
    assert [whole > 1 for _, whole in low] == [False, True, True, True]
    restarting = over[100, 10.0, 512]["epochs"]
    assert f"SGMF needs {restarting:.2f} times the noise of streams" in PAGE


def test_noise_of_streams_in_training():
    found = {
        (row["mechanism"], row["way"]): float(row["noise_multiplier"])
        * exact_numbers.error_of_sums(row["way"])
        for row in table("stream_training")
    }
    noise = {
        name: [f"{value:.2f}" for (of, _), value in found.items() if of == name]
        for name in ("GM", "MF", "CSGM", "SGMF")
    }
    poisson, slots = noise["GM"]
    epochs, whole, cyclic = noise["MF"]
    assert (
        f"in units of the clip, is {poisson} for the Gaussian mechanism with Poisson "
        f"sampling, {slots} with random slots, {epochs} for MF by epochs, {whole} in "
        f"one stream and {cyclic} with cyclic sampling"
    ) in PAGE
    epochs, one, turns = noise["SGMF"]
    [alone] = noise["CSGM"]
    assert f"{alone} for CSGM and {epochs}, {one} and {turns} for SGMF" in PAGE
    assert f"of noise alone {whole} to {cyclic} ([exact]" in text_of("claims")
    assert round(100 * (1 - float(cyclic) / float(whole))) == 4


def test_errors_under_secure_aggregation():
    found = result_rows.where(table("secagg_mean"), vectors="similar")
    errors = {
        (row["series"], row["compression_rate"]): float(row["theory"]) for row in found
    }
    integers, gaussian = errors["DDG, 16 bits", "1"], errors["Gaussian", "1"]
    assert errors["DDG, 12 bits", "1"] == integers
    assert f"({integers:.2f} and {gaussian:.2f} in theory)" in PAGE
    for bits in (16, 12):
        error = errors[f"shifts, {bits} bits", "10"]
        assert f"error at r=10 is {error:.1f}" in PAGE


def test_errors_of_sparse_means():
    found = table("secagg_sparse")
    plain, sparse, sketched = (
        result_rows.numbers(result_rows.where(found, mechanism=name), "squared_error")
        for name in ("distributed_discrete_gaussian", "sparse_recovery", "sketched_ddg")
    )
    assert {f"{error:.3f}" for error in plain} == {"0.042"}
    said = f"({min(sparse):.3f} to {max(sparse):.3f} against 0.042), with 0.1 to 2 bits"
    assert said in PAGE
    bits = result_rows.numbers(
        result_rows.where(found, mechanism="sparse_recovery"), BITS
    )
    assert (round(min(bits), 1), round(max(bits))) == (0.1, 2)
    # The squared norm of an update is 1.
    assert min(sketched) > 1


def test_least_bits():
    found = table("secagg_bits")
    for tolerance in bits_lib.TOLERANCES:
        cells = [
            ", ".join(
                format(secure_sums.least_bits(ratios, tolerance), ".1f")
                for bound in ("exact", "published")
                for ratios in [bits_lib.ratios_of(found, bits_lib.SIZE, epsilon, bound)]
            )
            for epsilon in bits_lib.EPSILONS
        ]
        assert f"| {tolerance:g} times | {' | '.join(cells)} |" in PAGE
    long = [
        bits_lib.ratios_of(found, (1000, 10_000), 8.0, bound)
        for bound in ("exact", "published")
    ]
    assert f"13 bits to {long[0][13]:.2f} times" in PAGE
    assert f"stays above {min(long[1].values()):.2f}" in PAGE
