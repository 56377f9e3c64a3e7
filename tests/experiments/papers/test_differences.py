# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What figures and claims say of differences are differences between rows of tables."""

import pytest

from experiments.papers import result_rows
from tests.experiments.papers import test_readme_numbers as readme
from tests.experiments.papers import test_results as results
from tests.experiments.papers.test_results import DOCS, text_of

BUDGETS = ("2.0", "4.0", "8.0", "16.0")
RATES = ("1", "10", "100")


def costs(name, kept=None, **labels):
    """Points of accuracy that compression costs; kept is its rate."""
    whole, sparse = (
        readme.runs(name, compression_rate=rate, **labels) for rate in (1, kept)
    )
    return readme.points(whole, sparse)


def loss_costs(name, kept=None, **labels):
    """How much more loss compression has; kept is its rate."""
    whole, sparse = (
        readme.runs(name, compression_rate=rate, **labels) for rate in (1, kept)
    )
    return readme.mean(sparse, "final_loss") - readme.mean(whole, "final_loss")


def words(found):
    """Three numbers in a sentence."""
    return "{}, {} and {}".format(*found)


def test_what_compression_costs_with_fifty_clients():
    found = {
        rate: [costs("csgm_fig5", rate, epsilon=epsilon) for epsilon in BUDGETS]
        for rate in (10, 100)
    }
    hundredth, tenth = ([f"{cost:.1f}" for cost in found[rate]] for rate in (100, 10))
    page, claims = text_of("figures"), text_of("claims")
    assert (
        "100-fold compression costs {} points at ε=2, {} at ε=4, {} at ε=8 and {} at "
        "ε=16, and 10-fold {}, {}, {} and {} ("
    ).format(*hundredth, *tenth) in page
    words = "{}, {}, {} and {} points at ε=2, 4, 8 and 16, of which the first alone"
    assert words.format(*hundredth) in claims
    apart = {
        (rate, epsilon)
        for rate in (10, 100)
        for epsilon in BUDGETS
        if not readme.overlap(
            *(
                readme.runs("csgm_fig5", compression_rate=each, epsilon=epsilon)
                for each in (1, rate)
            )
        )
    }
    assert apart == {(10, "2.0"), (100, "2.0"), (10, "8.0")}


def test_what_larger_cohorts_lose():
    names = ("csgm_fig5", "csgm_fig2", "csgm_fig4")
    labels = {
        epsilon: {"task": "mnist", "epsilon": epsilon} for epsilon in ("2.0", "8.0")
    }
    found = {
        epsilon: [f"{costs(name, 100, **own):.1f}" for name in names]
        for epsilon, own in labels.items()
    }
    said = "{} points with 50 clients, {} with 100".format(*found["8.0"])
    many = found["8.0"][2]
    assert f"{said} and {many} with 400, where" in text_of("figures")
    assert f"{said}, {many} with 400, where" in text_of("claims")
    assert f"at ε=2, at one rate, {words(found['2.0'])}." in text_of("figures")
    assert f"ε=2, at one rate: {words(found['2.0'])} (" in text_of("claims")
    told = {
        (name, epsilon)
        for name in names
        for epsilon, own in labels.items()
        if not readme.overlap(
            *(readme.runs(name, compression_rate=rate, **own) for rate in (1, 100))
        )
    }
    assert told == {("csgm_fig5", "2.0")}


def test_at_which_compression_the_cohort_does_not_decide():
    names = ("csgm_fig5", "csgm_fig2", "csgm_fig4")
    cost, noise = {}, {}
    for epsilon in ("2.0", "8.0"):
        own = {"task": "mnist", "epsilon": epsilon}
        cost[epsilon] = words([f"{costs(name, 10, **own):.1f}" for name in names])
        found = [
            [
                float(readme.runs(name, compression_rate=rate, **own)[0][column])
                for rate in (1, 100)
                for column in ["noise_multiplier"]
            ]
            for name in names
        ]
        noise[epsilon] = words([f"{100 * (z / y - 1):.0f}" for y, z in found])
    page, claims = text_of("figures"), text_of("claims")
    assert f"{cost['2.0']} at ε=2, which do not fall, and {cost['8.0']} at" in page
    assert f"at ε=2, where they are {cost['2.0']} points" in claims
    assert (
        f"100-fold takes {noise['2.0']}% more at ε=2 and {noise['8.0']}% more at ε=8"
    ) in page
    assert (
        f"100-fold takes {noise['2.0']}% more at ε=2 and {noise['8.0']}% at ε=8"
    ) in claims


def test_what_compression_costs_with_four_hundred_clients():
    hundredth, tenth = (
        [f"{costs('csgm_fig4', rate, epsilon=each):.1f}" for each in ("8.0", "2.0")]
        for rate in (100, 10)
    )
    pages = {name: text_of(name) for name in ("figures", "gallery", "claims")}
    said = (
        "costs {} points in the mean at ε=8, with a server rate of 0.5, and {} at ε=2, "
        "with one of 0.2. Three seeds tell neither from none. 10-fold costs {} and {}"
    )
    assert said.format(*hundredth, *tenth) in pages["figures"]
    assert (
        "costs {} points at ε=8 and {} at ε=2, which".format(*hundredth)
        in pages["gallery"]
    )
    assert (
        "with 400 clients {}, and {} at ε=2, none".format(*hundredth) in pages["claims"]
    )
    assert f"tell the {tenth[1]} that 10-fold costs with 400" in pages["claims"]
    assert "10-fold costs {} and {}, of which".format(*tenth) in pages["gallery"]
    told = {
        (rate, epsilon)
        for rate in (10, 100)
        for epsilon in ("2.0", "8.0")
        if not readme.overlap(
            *(
                readme.runs("csgm_fig4", compression_rate=each, epsilon=epsilon)
                for each in (1, rate)
            )
        )
    }
    assert told == {(10, "2.0")}


def test_what_ten_fold_costs_on_docstrings():
    cost = f"{loss_costs('csgm_fig2', 10, task='docs'):.2f}"
    for page in ("figures", "gallery"):
        assert f"10-fold costs {cost} of the" in text_of(page)


def test_what_ten_fold_costs_at_each_budget():
    found = [f"{loss_costs('csgm_fig6', 10, epsilon=each):.2f}" for each in BUDGETS]
    said = "costs {}, {}, {} and {}".format(*found)
    ending = "at ε=2, 4, 8 and 16, which the seeds tell from none at each"
    assert f"10-fold compression {said} {ending}" in text_of("figures")
    assert f"10-fold {said} of the loss {ending}" in text_of("claims")
    for epsilon in BUDGETS:
        whole, kept = (
            readme.runs("csgm_fig6", compression_rate=rate, epsilon=epsilon)
            for rate in (1, 10)
        )
        assert max(result_rows.numbers(whole, "final_loss")) < min(
            result_rows.numbers(kept, "final_loss")
        )


def test_at_which_budgets_accuracies_tell_ten_fold_from_none():
    told = {
        epsilon
        for epsilon in BUDGETS
        if not readme.overlap(
            *(
                readme.runs("csgm_fig6", compression_rate=rate, epsilon=epsilon)
                for rate in (1, 10)
            )
        )
    }
    assert told == {"2.0", "8.0"}
    assert "by accuracy at ε=2 and 8 alone" in text_of("claims")


def test_the_accuracy_of_the_best_of_dome_on_docstrings():
    best, sketch = (
        readme.runs("equal_bits_docs", mechanism=name, point=point)
        for name, point in (
            ("dome_few_bits", "k1024"),
            ("sketched_ddg_once", "r100_b10"),
        )
    )
    assert readme.reach(best)[0] > readme.reach(sketch)[1]
    found = (results.said(runs, "final_accuracy") for runs in (best, sketch))
    said = "{} to {}".format(*found)
    assert f"by accuracy it is ahead of that one, {said}, and" in text_of("figures")
    assert f"is ahead of it by accuracy, {said}, where" in text_of("claims")


def test_with_a_small_clip_neither_noise_nor_compression_matters():
    found = [
        [
            readme.runs("sgmf_fig8", epsilon=each, compression_rate=rate)
            for rate in RATES
        ]
        for each in BUDGETS
    ]
    means = [readme.mean(runs, "final_accuracy") for line in found for runs in line]
    least, most = (f"{each:.3f}" for each in (min(means), max(means)))
    assert f"all means lie between {least} and {most}, so" in text_of("figures")
    said = f"means lie between {least} and {most}, at any of four budgets"
    assert said in text_of("gallery")
    gains = [100 * (new - old) for old, new in zip(means, means[-len(RATES) :])]
    words = "MF gains {:.1f} points, 10-fold {:.1f} and 100-fold {:.1f}, of which seeds"
    assert words.format(*gains) in text_of("figures")
    told = [not readme.overlap(*runs) for runs in zip(found[0], found[-1])]
    assert told == [False, True, False]
    for whole, *kept in found:
        assert all(readme.overlap(whole, runs) for runs in kept)


def test_what_the_slack_is_of_all_that_is_learned():
    shares = []
    for noise in ("0.0", "0.6"):
        whole = readme.runs(
            "secagg_fig2", task="docs", noise_multiplier=noise, compression_rate="1"
        )
        loss = readme.mean(whole, "final_loss")
        [guessed] = result_rows.read_csv(DOCS / "results/docs_frequencies.csv")
        shares.append(100 * 0.04 * loss / (float(guessed["loss"]) - loss))
    said = f"4% of the loss, which is {shares[1]:.0f} to {shares[0]:.0f}% of what is"
    assert said in text_of("figures")


def test_what_sgmf_costs():
    tenth, hundredth = (f"{costs('sgmf_fig3', rate):.1f}" for rate in (10, 100))
    said = f"10-fold compression costs {tenth} points and 100-fold {hundredth}"
    assert said in text_of("figures")


def test_what_compression_costs_where_noise_decides():
    tenth, hundredth = (
        f"{costs('sgmf_fig7', rate, epsilon='2.0'):.1f}" for rate in (10, 100)
    )
    said = f"10-fold compression costs {tenth} points and 100-fold {hundredth}, and"
    assert said in text_of("figures")
    own = [
        f"{costs('csgm_fig2', rate, task='mnist', epsilon='2.0'):.1f}"
        for rate in (10, 100)
    ]
    said = "SGMF loses {} and {} points and CSGM {} and {}, but 4.9"
    assert said.format(tenth, hundredth, *own) in text_of("claims")
    for rate in (10, 100):
        whole, kept = (
            readme.runs("sgmf_fig7", epsilon="2.0", compression_rate=each)
            for each in (1, rate)
        )
        assert not readme.overlap(whole, kept)


def test_what_falls_behind_at_the_smallest_budget_is_the_accountant():
    noisier = readme.runs("sgmf_sensitivity", mechanism="MF by RDP", epsilon="2.0")
    whole, tenth = (
        readme.runs("sgmf_fig7", epsilon="2.0", compression_rate=rate)
        for rate in (1, 10)
    )
    assert not readme.overlap(noisier, whole) and readme.overlap(noisier, tenth)
    noise = [float(runs[0]["noise_multiplier"]) for runs in (noisier, tenth)]
    assert noise[0] == pytest.approx(noise[1], rel=1e-3)
    said = results.said(noisier, "final_accuracy")
    hundredth = readme.runs("sgmf_fig7", epsilon="2.0", compression_rate=100)
    assert readme.overlap(noisier, hundredth)
    page = text_of("figures")
    cost, *rest = (
        f"{readme.points(*pair):.1f}"
        for pair in ((whole, noisier), (noisier, tenth), (noisier, hundredth))
    )
    assert f"as well, {cost} points below MF" in page
    assert f"but {cost} of these are SGMF's accountant's" in text_of("claims")
    assert "The {} points that remain to 10-fold and the {} to".format(*rest) in page
    ended = "MF by RDP, with the noise of 10-fold, ends at"
    assert f"{ended} {said} as well" in text_of("figures")
    assert f"MF with the noise of 10-fold ends at {said}," in text_of("claims")
    assert f"with as much as 10-fold ends at {said[:5]} (`sgmf_sens" in text_of(
        "gallery"
    )


def test_what_compression_costs_beyond_the_smallest_budget():
    lost = []
    for budget in ("4.0", "8.0", "16.0"):
        whole, *kept = (
            readme.runs("sgmf_fig7", epsilon=budget, compression_rate=rate)
            for rate in RATES
        )
        assert all(readme.overlap(whole, runs) for runs in kept)
        lost += [costs("sgmf_fig7", rate, epsilon=budget) for rate in (10, 100)]
    most = f"{max(lost):.1f} points or less"
    page, gallery = text_of("figures"), text_of("gallery")
    assert f"compression costs {most} at ε=4, 8 and 16" in page
    assert f"costs a million parameters {most} at ε=4, 8 and 16" in gallery
    assert f"clip 1.0 and rate 0.1 as well, SGMF loses {most}" in text_of("claims")


def test_what_sketches_cost_cohorts_at_one_epsilon():
    found, told = {}, set()
    for budget in ("", "8.0"):
        for size in ("50", "200"):
            own = {"budget": budget, "cohort_size": size}
            whole = readme.runs("secagg_fig7", compression_rate="1", **own)
            for rate in ("10", "100"):
                kept = readme.runs("secagg_fig7", compression_rate=rate, **own)
                found[budget, size, rate] = f"{readme.points(whole, kept):.1f}"
                if not readme.overlap(whole, kept):
                    told.add((budget, size, rate))
    assert told == {("8.0", "50", "100")}
    few, many = (
        [found["8.0", size, rate] for rate in ("10", "100")] for size in ("50", "200")
    )
    page, gallery, claims = map(text_of, ("figures", "gallery", "claims"))
    assert (
        "at ε=8, 10-fold costs {} points and 100-fold {} with 50 clients, and {} and "
        "{} with 200"
    ).format(*few, *many) in page
    said = f"a hundredth costs 50 clients {few[1]} points, which seeds tell from none, "
    assert f"{said}and 200 clients {many[1]}, which they do not" in gallery
    said = f"100-fold costs 50 clients {few[1]} points, which three seeds tell from "
    assert f"{said}zero, and 200 clients {many[1]}, which" in claims
    assert f"10-fold costs {few[0]} and {many[0]}, which they do" in claims


def test_how_far_the_larger_cohort_is_ahead_in_the_same_time():
    ahead = []
    for budget in ("8.0", ""):
        few, many = (
            readme.runs(
                "secagg_fig8", budget=budget, cohort_size=size, compression_rate=rate
            )
            for size, rate in (("50", "1"), ("200", "10"))
        )
        assert not readme.overlap(few, many)
        ahead.append(f"{readme.points(many, few):.1f}")
    page, claims = text_of("figures"), text_of("claims")
    assert f"are {ahead[0]} points ahead at ε=8" in page
    assert f"and {ahead[1]} at z=1, at the larger ε" in page
    assert f"yes: by {ahead[0]} points at ε=8" in claims
    assert f"by {ahead[1]} at one z, where" in claims


def test_where_correlated_noise_is_the_more_sensitive():
    """By the rule in the grid: losses from the own best, and their ranges."""
    wide, narrow, doubled = ("1.0", "0.1"), ("0.03", "0.5"), ("0.3", "1.0")
    lost, verdicts = {}, {}
    for epsilon, own in (("2.0", ("0.3", "0.2")), ("8.0", ("0.3", "0.5"))):
        others = (wide, narrow, *((doubled,) if epsilon == "8.0" else ()))
        found = {
            (name, each): readme.runs(
                "sgmf_sensitivity",
                mechanism=name,
                epsilon=epsilon,
                clip_norm=each[0],
                server_lr=each[1],
            )
            for name in ("GM", "MF")
            for each in (own, *others)
        }
        means = {k: readme.mean(v, "final_accuracy") for k, v in found.items()}
        best = {
            name: max(mean for (one, _), mean in means.items() if one == name)
            for name in ("GM", "MF")
        }
        for each in others:
            reach = {}
            for name, most in best.items():
                low, high = readme.reach(found[name, each])
                reach[name] = most - high, most - low
                lost[epsilon, name, each] = f"{100 * (most - means[name, each]):.1f}"
            is_told = reach["MF"][0] > reach["GM"][1] or reach["GM"][0] > reach["MF"][1]
            is_more = reach["MF"][0] > reach["GM"][0]
            verdicts[epsilon, each] = (is_told and is_more) - (is_told and not is_more)
    assert verdicts == {
        **{("2.0", wide): 1, ("2.0", narrow): 0},
        **{("8.0", wide): 0, ("8.0", narrow): 0, ("8.0", doubled): 0},
    }

    # Seed by seed one more is told, the other way.
    by_seed = {
        name: [
            float(best_run["final_accuracy"]) - float(run["final_accuracy"])
            for best_run, run in zip(
                *(
                    readme.runs(
                        "sgmf_sensitivity",
                        mechanism=name,
                        epsilon="2.0",
                        clip_norm=clip,
                        server_lr=rate,
                    )
                    for clip, rate in (("0.3", "0.2"), narrow)
                )
            )
        ]
        for name in ("GM", "MF")
    }
    assert min(by_seed["GM"]) > max(by_seed["MF"])

    def pair(epsilon, each):
        return " and ".join(lost[epsilon, name, each] for name in ("MF", "GM"))

    page, gallery, claims = map(text_of, ("figures", "gallery", "claims"))
    few, many = (lost["2.0", name, wide] for name in ("GM", "MF"))
    words = f"loses {many} points and the Gaussian mechanism {few}. With"
    assert words in page
    least, most = (lost["2.0", name, narrow] for name in ("MF", "GM"))
    words = f"at ε=2 MF loses {least} points and the Gaussian mechanism {most}. At"
    assert words in page
    later = [pair("8.0", each) for each in (wide, doubled)]
    (both,) = {f"{float(lost['8.0', name, narrow]):.0f}" for name in ("GM", "MF")}
    later.insert(1, f"{both} each")
    words = "ε=8 they lose {} with clip 1.0, {} with clip 0.03, and {} with the rate"
    assert words.format(*later) in page
    assert f"rate 0.5 there {pair('2.0', narrow)} (by" in claims
    assert "and at ε=8 {}, {}, and {} at twice the rate".format(*later) in claims
    assert (
        f"lose {many} points of their best and the Gaussian mechanism {few}" in claims
    )
    words = f"loses {many} points of its best and the Gaussian mechanism {few}, so"
    assert words in gallery


def test_how_far_apart_variants_of_dome_are():
    own, best, sketch, adam, plain = (
        readme.runs("dome_cnn", mechanism=name)
        for name in (
            "dome",
            "dome_ddg_rank1",
            "sketched_ddg_few_bits",
            "sketched_ddg_adam",
            "gaussian_sgd",
        )
    )
    page = text_of("figures")
    assert f"is {readme.points(best, own):.0f} points behind its own best" in page
    ahead = [f"{readme.points(best, other):.1f}" for other in (sketch, adam)]
    words = "best is {} points ahead of the sketch with SGD and {} points ahead of that"
    assert words.format(*ahead) in page
    assert readme.overlap(best, sketch) and readme.overlap(best, adam)
    assert f"A sketch of a thousandth costs {readme.points(plain, sketch):.1f}" in page
    assert readme.points(plain, best) == pytest.approx(1, abs=0.1)


def test_what_one_stream_gains():
    found = result_rows.read_csv(DOCS / "results/stream_training.csv")

    def loss(mechanism, way):
        chosen = result_rows.where(found, mechanism=mechanism, way=way)
        return readme.mean(chosen, "final_loss")

    gains = [
        loss(alone, "Poisson sampling") - loss(stream, way)
        for alone, stream in (("GM", "MF"), ("CSGM", "SGMF"))
        for way in ("one stream", "one stream, cyclic sampling")
    ]
    said = f"by {min(gains):.2f} to {max(gains):.2f} of test loss"
    assert said in text_of("gallery")


def test_what_a_sketch_of_a_thousandth_costs():
    found = result_rows.where(
        result_rows.read_csv(DOCS / "results/secagg_fig2.csv"), task="mnist"
    )
    for noise in result_rows.distinct(found, "noise_multiplier"):
        cost = costs("secagg_fig2", 1000, task="mnist", noise_multiplier=noise)
        assert f"one of a thousandth {cost:.1f} points either way" in text_of("gallery")


def test_how_much_faster_the_fixed_point_is():
    plain, accelerated = (
        [
            float(row["lbfgs_seconds"]) / float(row[f"{name}_seconds"])
            for row in result_rows.read_csv(DOCS / "results/mf_fig4.csv")
        ]
        for name in ("plain", "accelerated")
    )
    said = (
        "iteration is {:.1f} and {:.1f} times as fast as L-BFGS, and dpfl's "
        "accelerated one {:.0f} and {:.0f} times"
    )
    assert said.format(*plain, *accelerated) in text_of("claims")


def test_what_all_runs_of_ten_fold_on_docstrings_come_to():
    whole, tenth = (
        [
            *readme.runs(
                "csgm_fig6", task="docs", epsilon="8.0", compression_rate=rate
            ),
            *readme.runs("stream_training", mechanism=name, way="Poisson sampling"),
        ]
        for name, rate in (("GM", 1), ("CSGM", 10))
    )
    # With this accountant, L2-CSGM has another noise multiplier.
    whole += readme.runs("csgm_tight", task="docs", compression_rate=1)
    means = [f"{readme.mean(found, 'final_loss'):.3f}" for found in (whole, tenth)]
    assert (len(whole), len(tenth)) == (9, 6)
    said = "have means of {} for GM (nine runs) and {} for 10-fold (six), and ranges"
    assert said.format(*means) in text_of("figures")
    said = (
        "Gaussian has {} in nine runs and 10-fold {} in six, with ranges that overlap"
    )
    assert said.format(*means) in text_of("claims")
    (_, most), (least, _) = (
        readme.reach(found, "final_loss") for found in (whole, tenth)
    )
    assert least < most


def test_by_how_little_ten_fold_is_told_apart():
    whole, tenth = (
        readme.reach(
            readme.runs("csgm_fig6", epsilon="16.0", compression_rate=rate),
            "final_loss",
        )
        for rate in (1, 10)
    )
    said = f"at ε=16 by {tenth[0] - whole[1]:.4f} of the loss"
    assert all(said in text_of(page) for page in ("figures", "claims"))
