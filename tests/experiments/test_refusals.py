# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Numbers without bounds, options without meaning, files that are none: refused."""

import errno
import functools
import io
import json
import os
import shlex
import signal
import subprocess
import sys

import pytest

from experiments import cli, commands
from tests import forks
from tests.experiments import programs
from tests.refusals import names
from tools import fuzz

HUGE = str(10**23)
EPSILON = "epsilon --noise_multiplier=1"
ONCE = "--participation=once_per_epoch"
BANDS = "bands --epsilon=8 --population=400 --rounds=12 --accounting_method=rdp"
TINY = "--task=synthetic --model=small_cnn --num_clients=12 --cohort_size=4 --rounds=24 --compression_rate=20"
# Names and values that the one-line error holds, by binary and command line.
REFUSED = {
    "privacy": {
        "": "command epsilon calibrate explain compare bits bands",
        "forget": "command forget",
        "calibrate --nonsense=1": "--nonsense",
        "calibrate --epsilon=many": "--epsilon many",
        "calibrate --epsilon=nan": "--epsilon nan",
        "calibrate --epsilon=-1": "--epsilon -1.0",
        "calibrate --epsilon=1 --delta=0": "--delta 0.0",
        "calibrate": "--epsilon calibrate",
        "calibrate --epsilon=1 --keep_fraction=0.5": "--keep_fraction gaussian",
        "calibrate --epsilon=1 --mechanism=sketched_ddg": "--bits sketched_ddg",
        "calibrate --epsilon=1 --mechanism=magic": "--mechanism magic",
        "calibrate --epsilon=1 --noise_multiplier=1": "--noise_multiplier calibrate",
        "calibrate --epsilon=1 --population=5": "--cohort_size 5 100",
        "calibrate --epsilon=1 --output=/no/such/a": "--output /no/such/a",
        "calibrate --epsilon=1 --output=/tmp": "--output /tmp",
        "calibrate --epsilon=1e30": "--epsilon 1e+30",
        "bits --epsilon=8 --widths=0": "--widths 1 0",
        "bits --epsilon=8 --widths=1,x": "--widths 1,x",
        "bands": "--epsilon bands",
        f"{BANDS} --bands=1,x": "--bands 1,x",
        f"{BANDS} --bands=0": "--bands 0",
        f"{BANDS} --bands=5": "bands 5",
        f"{BANDS} --participation=fixed": "--participation fixed",
        f"{BANDS} --participation=balls_in_bins --mechanisms=sgmf": "--mechanisms sgmf",
        f"{BANDS} --participation=b_min_separation --compression_rates=10": "--compression_rates 1 10",
        f"{BANDS} --mechanisms=gaussian": "--mechanisms gaussian",
        f"{BANDS} --sketch_size=3": "--sketch_size bands",
        f"{BANDS} --matrix_method=blt": "matrix_method blt",
        "calibrate --epsilon=8 --dimension=650 --mechanism=sketched_ddg --bits=16 --compression_rate=100": "--compression_rate",
        "explain": "--noise_multiplier",
        "explain --noise_multiplier=1 --epsilon=8": "--noise_multiplier",
        "explain no_such_run": "no_such_run",
        "explain .": "RUN",
        "explain one two": "one two",
        "explain . --rounds=3": "--rounds",
        "epsilon": "--noise_multiplier epsilon",
        "epsilon --noise_multiplier=1e200": "--noise_multiplier 1e+200",
        "epsilon --noise_multiplier=1e-200": "--noise_multiplier 1e-200",
        "compare --epsilon=1 --compression_rates=0.5": "--compression_rates 0.5",
        "compare --epsilon=1 --mechanisms=magic": "--mechanisms magic",
        "compare --epsilon=1 --plot=/no/such/a.png": "--plot /no/such/a.png",
        "compare --equal=error --mean_squared_error=1 --epsilon=1": "--epsilon --mean_squared_error",
        "compare --equal=error --mean_squared_error=1 --bits=auto": "--bits --mean_squared_error",
        "compare --epsilon=1 --mechanisms=gaussian --sketch_size=5": "--sketch_size",
        f"{EPSILON} --rounds=2.5": "--rounds 2.5",
        f"{EPSILON} --clip_norm=x": "--clip_norm x",
        f"{EPSILON} --json=maybe": "--json maybe",
        f"{EPSILON} --participation=x": "--participation x",
        f"{EPSILON} --delta=1.0": "--delta 1e-300 1 1.0",
        f"{EPSILON} --roundss=2": "--roundss --rounds",
        f"{EPSILON} --rounds": "--rounds",
        f"{EPSILON} --flagfile=none": "--flagfile",
        f"{EPSILON} --flagfile none": "--flagfile",
        "compare --epsilon=8 --keep_fraction=0.1": "--keep_fraction --compression_rates",
        "compare --epsilon=8 --mechanism=gaussian": "--mechanism --mechanisms",
        f"{EPSILON} --mechanism=project_and_perturb --sketch_clip=1e308": "--sketch_clip 1e-09 1000000000",
        f"{EPSILON} --mechanism=sparse_recovery --bits=16 {ONCE} --measurements=1e308": "--measurements 1e-09 1000000000",
        f"{EPSILON} --mechanism=sparse_recovery --bits=16 {ONCE} --solver_steps={HUGE}": "--solver_steps 1000000",
        f"{EPSILON} --adaptive_clipping --count_stddev=1e-300": "--count_stddev 1e-100",
        f"epsilon --mechanism=distributed_discrete_gaussian --bits=16 {ONCE} --noise_multiplier=1e308": "--noise_multiplier 0 1e-100 1e100",
        "epsilon --noise_multiplier=1e30": "--noise_multiplier 1e+09",
        f"{EPSILON} --rounds={HUGE}": "--rounds 1000000000",
        f"{EPSILON} --rounds={10**400}": "--rounds 1000000000",
        f"{EPSILON} --dimension={HUGE}": "--dimension 1000000000000",
        f"{EPSILON} --mechanism=project_and_perturb --sketch_length={HUGE}": "--sketch_length 1048576",
        f"{EPSILON} --output=/dev/full": "--output /dev/full",
        f"{EPSILON} --output=full": "--output full",
        f"{EPSILON} --output=pipe": "--output pipe",
        f"{EPSILON} --output=dangling": "--output dangling",
        f"{EPSILON} --output=name/": "--output name/",
        f"{EPSILON} --output={'a' * 250}": "--output",
        f"{EPSILON} --flagfile=pipe": "--flagfile pipe",
        f"{EPSILON} --flagfile pipe": "--flagfile pipe",
        f"{EPSILON} --nojson=1": "--nojson",
        "compare --epsilon=8 --plot=x.abc": "--plot x.abc",
        "compare --epsilon=8 --plot=a.png --output=a.png": "--plot --output a.png",
        f"calibrate --epsilon=8 --mechanism=matrix_factorization {ONCE} --rounds_per_epoch=100000 --rounds=100000 --population=10000000": "--rounds_per_epoch 8192",
        f"{EPSILON} --mechanism=matrix_factorization {ONCE} --rounds_per_epoch=4 --population=400 --matrix_file=pipe": "--matrix_file pipe",
    },
    "factorize": {
        "": "command compute compare",
        "melt": "command melt",
        "compute --matrix_method=blt": "--matrix_buffers --matrix_method",
        "compute --rounds=8,x": "--rounds 8,x",
        "compute --rounds=8,16": "--rounds 2",
        "compare --epochs=2": "--separation --epochs",
        "compute --rtol=nan": "--rtol nan",
        "compute --matrix_bands=3": "--matrix_bands optimal",
        "compute --output=.": "--output .",
        "compare --plot=/proc/no/x.png": "--plot /proc/no/x.png",
        "compute --matrix_momentum=1.5": "--matrix_momentum 0 1 1.5",
        "compute --rounds=0": "--rounds 0",
        "compute --rounds=16 --matrix_method=banded": "--matrix_bands --matrix_method",
        "compute --rounds=100000": "--rounds 8192 100000",
        "compute --rounds=100000 --matrix_method=honaker-online": "--rounds 8192",
        "compute --rounds=100000 --matrix_method=banded --matrix_bands=3": "--rounds 8192",
        "compute --rounds=100000 --matrix_method=toeplitz": "--matrix_bands 10737 100000",
        "compute --rounds=100000 --matrix_method=blt --matrix_buffers=2 --epochs=50000 --separation=2": "--epochs 10737 100000",
        f"compute --rounds={HUGE}": "--rounds 1000000",
        f"compute --matrix_schedule=drop --drop_factor={HUGE}": "--drop_factor 1e-09 1000000000",
        "compute --rounds=16 --epochs=2 --separation=100": "--epochs --separation 1 16 2",
        "compute --rounds=16 --separation=100": "--separation --epochs",
        "compute --rounds=16 --drop_factor=0.5": "--drop_factor --matrix_schedule",
        "compute --rounds=16 --plot=": "--plot compute",
        "compute --rounds=16 --objective=last": "--objective optimal",
        "compare --rounds=16 --plot=x.abc": "--plot x.abc",
        "compute --rounds=8 --matrix_schedule=drop --drop_factor=1e9": "--rtol",
        "compute --rounds=16 --output=/dev/full": "--output /dev/full",
        f"compute --rounds=16 --matrix_momentum={10**400}": "--matrix_momentum",
    },
    "train": {
        f"{TINY} --rounds=0": "--rounds 1 0",
        f"{TINY} --client_lr=nan": "--client_lr nan",
        f"{TINY} --client_lr=-1": "--client_lr -1.0",
        f"{TINY} --noise_multiplier=1e30": "--noise_multiplier 1e+30",
        f"{TINY} --delta=1.5": "--delta 1.5",
        f"{TINY} --server_momentum=1": "--server_momentum 1.0",
        f"{TINY} --seed=-1": "--seed -1",
        f"{TINY} --mechanism=gaussian": "--compression_rate gaussian",
        f"{TINY} --compression_rate=0.5": "--compression_rate 1 0.5",
        f"{TINY} --compression_rate=inf": "--compression_rate inf",
        f"{TINY} --keep_fraction=0.1": "--compression_rate --keep_fraction",
        f"{TINY} --vocab_size=5": "--vocab_size synthetic",
        f"{TINY} --weighted": "--weighted",
        f"{TINY} --batch_size=x": "--batch_size x",
        f"{TINY} --model=resnet": "--model resnet",
        f"{TINY} --participation=never": "--participation never",
        f"{TINY} --no_such_flag": "--no_such_flag",
        f"{TINY} --mechanism=sketched_ddg --noise_source=helpers --bits=2 --noise_multiplier=0.01": "--bits 2",
        f"{TINY} --mechanism=sgmf {ONCE} --matrix_file=/none.npz": "--matrix_file /none.npz",
        f"{TINY} what": "what",
        f"{TINY} --output_dir=": "--output_dir",
        "--flagfile=tasks/digits.flags --mechanism=none --epsilon=2": "--epsilon none",
        "--compression_rate=1e9": "--epsilon",
        "--max_examples_per_client=x": "--max_examples_per_client x",
        "--task=docs --lstm_size=1000000000": "--lstm_size 100000 1000000000",
        "--task=docs --lstm_size=100000 --embedding_size=100000": "--vocab_size --embedding_size --lstm_size 1e+08",
        f"--batch_size={2**63}": "--batch_size 1000000000",
        f"--shuffle_seed={2**63}": "--shuffle_seed 9223372036854775807",
        f"--partition_seed={2**32}": "--partition_seed 4294967295",
        "--task=synthetic --num_clients=1000000000": "--num_clients 10000000",
        "--concurrency=1000000": "--concurrency 1000 1000000",
        "--round_deadline=1e300": "--round_deadline 0 10000000",
        "--epsilon=1e308": "--epsilon 0 1000000 1e+308",
        f"--checkpoint_every={HUGE}": "--checkpoint_every 10000000",
        f"--seed={2**256}": "--seed",
        "--mechanism=none --delta=0.1": "--delta none",
        "--target_quantile=0.3 --mechanism=gaussian": "--target_quantile --adaptive_clipping",
        "--output_dir=file": "--output_dir file",
    },
    "benchmark": {
        "--rows=plain,fast": "--rows fast",
        "--rows=jax_aggregation": "--rows jax_aggregation",
        "--output=missing/x": "--output missing/x",
        "--repeats=1001": "--repeats 1 1000 1001",
        "--rows=": "--rows",
        "--peers=tff=x": "--peers tff x",
        "--peers=tff,tff": "--peers tff",
        "--peers=": "--peers ''",
        "--peers=pfl": "--peers pfl",
        "--peers=fedjax=missing": "--peers fedjax missing",
        "--peers=tff --rows=plain": "--rows plain",
        "--peers=tff --processes=1": "--processes 2 --peers 1",
        "--peers=tff --repeats=3": "--repeats --peers",
    },
    "compare": {
        "": "RUN",
        "RUN --json --csv": "--csv --json",
        "RUN --html=a.txt": "--html a.txt",
    },
    "reproduce": {
        "--figure=no_such": "no_such",
        "--figure=csmg_fig1": "csmg_fig1 csgm_fig1",
        "--figure=csgm_fig1 --scale=large": "--scale large",
        "--figure=csgm_fig1 --plot_only": "--plot_only",
        "--figure=csgm_fig1 --scale=medium": "--scale medium",
        "--figure=csgm_fig2 --allow_partial_data": "--allow_partial_data --scale",
        "--figure=csgm_fig2 --download": "--download --scale",
        "--figure=csgm_fig1 --from_table=a --table=b": "--table --from_table",
        "--figure=csgm_fig1 --from_table=a": "--from_table a",
        "--figure=mf_fig4 --from_table=a": "--from_table mf_fig4",
        "--figure=csgm_fig1 --table=a.png": "--table a.png",
        "csgm_fig1": "csgm_fig1",
        "--figure=csgm_fig1 --scale=paper --data_dir=/nonexistent": "--data_dir /nonexistent",
        "--figure=csgm_fig1 --data_dir=folder": "--data_dir --scale",
        "--figure=csgm_fig1 --plot_only --jobs=2": "--jobs --plot_only",
        "--figure=csgm_fig1 --jobs=1000000": "--jobs 1000",
        "--figure=csgm_fig1 --output_dir=file": "--output_dir",
        "--figure=csgm_fig1 --output_dir=loop": "--output_dir",
        "--figure=csgm_fig1 --output_dir=": "--output_dir",
        "--figure=csgm_fig1 --engine=jax": "--engine csgm_fig1",
        "--figure=mean_estimation --seeds=1": "--seeds mean_estimation",
        "--figure=csgm_fig2 --engine=jax": "--engine jax",
        "--figure=csgm_fig2 --seeds=5-1": "--seeds 5-1",
        "--figure=csgm_fig2 --from_table=a --seeds=1": "--seeds --from_table",
    },
}


@pytest.mark.parametrize("binary", REFUSED)
def test_bad_command_line_is_a_one_line_error(binary, tmp_path):
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{json.dumps(x.split())}\n" for x in REFUSED[binary]))
    words = ("tools.fuzz", binary, "--given")
    if binary in ("privacy", "factorize"):
        # A fork with libraries that they never import takes longer than their imports.
        command = [sys.executable, "-m", *words]
        with lines.open() as read:
            done = subprocess.run(
                command, stdin=read, capture_output=True, text=True, cwd=programs.ROOT
            )
    else:
        done = forks.run(*words, first=functools.partial(programs.read_from, lines))
    results = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
    assert len(results) == len(REFUSED[binary]), done.stderr
    wrong = [
        (found, parts)
        for found, parts in zip(results, REFUSED[binary].values())
        if found["code"] != 2
        or not names(found["said"], *parts.split())
        or found["fault"]
    ]
    assert not wrong


def privacy(**options):
    words = programs.command("privacy", *EPSILON.split())
    return subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, cwd=programs.ROOT, **options
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_full_disk_under_stdout_is_an_error():
    with open("/dev/full", "w") as full, privacy(stdout=full) as process:
        said = process.stderr.read()
        assert names(said, "error", "stdout", os.strerror(errno.ENOSPC))
        assert said.count("\n") == 1
    assert process.returncode == 1


def test_closed_stdout_reader_exits_with_141():
    reader, writer = os.pipe()
    os.close(reader)
    with privacy(stdout=writer) as process:
        os.close(writer)
        assert process.stderr.read() == ""
    assert process.returncode == 141


def ended(line, **options):
    """How dpfl-privacy ends, started by a shell with one line in front of its own."""
    words = shlex.join([sys.executable, "-m", "dpfl", "privacy", *EPSILON.split()])
    return subprocess.run(
        ["bash", "-c", line.format(words)],
        capture_output=True,
        cwd=programs.ROOT,
        env={**programs.environment(), **options},
    )


@pytest.mark.parametrize(
    ("line", "code", "start"),
    [
        (f"{{}} --{'a' * 1200}=1", 2, b"error: --a"),
        (f"{{}} --rounds={'9' * 5000}", 2, b"error: --rounds"),
        ("{} >&-", 1, b"error: stdout"),
        ("{} 2>&- >&- <&-", 1, b""),
        # Neither is taken for the file.
        ("{} --output=$OUT 2>&- >&- <&-; cat $OUT >&2", 0, b"mechanism"),
        ("{} --nosuch 2>/dev/full", 2, b""),
        ("ulimit -v 100000; exec {}", 1, b"error: "),
        ("ulimit -f 0; exec {} --output=$OUT", 2, b"error: /"),
        ("{} --flagfile=<(printf -- '--output=a\\0b')", 2, b"error: --flagfile"),
        (
            "printf -- '--output=a\\0b' > $OUT; {} --flagfile=$OUT",
            2,
            b"error: --output",
        ),
        ("printf -- '--output=\\xff' > $OUT; {} --flagfile=$OUT", 2, b"error: --flagf"),
    ],
)
def test_closed_or_redirected_streams_are_handled(line, code, start, tmp_path):
    done = ended(line, OUT=str(tmp_path / "out"))
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(start)
    assert b"Traceback" not in done.stderr and len(done.stderr) < 2000


@pytest.mark.parametrize(
    ("rest", "part"), [(">&-", "closed"), (">/dev/full", os.strerror(errno.ENOSPC))]
)
def test_unprintable_command_list_is_an_error(rest, part):
    words = shlex.join([sys.executable, "-m", "dpfl"])
    line = ["bash", "-c", f"{words} {rest}"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=programs.ROOT)
    assert done.returncode == 1
    assert names(done.stderr, "error", "stdout", part)


def test_any_character_is_printed_in_any_encoding(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "argv", ["dpfl-privacy"])
    monkeypatch.setattr(cli.app, "run", lambda *_, **__: print("\u00e9\udcff"))
    cli.run(None)
    assert stream.buffer.getvalue() == b"\\xe9\\udcff\n"


def test_exit_before_work_is_a_failure(monkeypatch):
    monkeypatch.setattr(cli.app, "run", lambda main, **_: main([]))
    for code, told in ((0, 1), (None, 1), (3, 3)):
        with pytest.raises(SystemExit) as ended:
            cli.run(lambda _, code=code: sys.exit(code))
        assert ended.value.code == told


def test_exhausted_resources_are_one_line_errors(monkeypatch):
    def ended_by(error):
        def main(argv):
            cli.work_begins()
            raise error

        with pytest.raises((SystemExit, RuntimeError, OSError)) as ended:
            cli.run(main)
        return ended.value

    monkeypatch.setattr(cli.app, "run", lambda main, **_: main([]))
    assert ended_by(MemoryError()).code == 1
    assert ended_by(RuntimeError("can't start new thread")).code == 1
    assert ended_by(OSError(errno.ENOSPC, "No space left", "x.npz")).code == 1
    another = RuntimeError("another")
    assert ended_by(another) is another


HEAVY = ("tensorflow", "tensorflow_federated", "keras", "jax", "tensorboard.compat")
HEAVY += (
    "scipy.stats._distn_infrastructure",
    "scipy.signal._signaltools",
    "matplotlib",
)
REFUSED_EARLY = {
    "train": "--task=synthetic --mechanism=gaussian --compression_rate=2",
    "privacy": "calibrate --epsilon=-1",
    "factorize": "compute --rounds=0",
    "audit": "--mechanisms=magic",
    "compare": "nowhere",
    "search": "--runs=0",
    "prepare": "femnist nowhere",
    "sweep": "--seeds=x --output_dir=nowhere",
    "new-task": "mine",
}


@pytest.mark.parametrize("binary", commands.COMMANDS)
def test_bad_flags_are_refused_before_heavy_imports(binary):
    line = [binary, *REFUSED_EARLY[binary].split()]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dpfl", *line],
        cwd=programs.ROOT,
        env=programs.environment(),
        capture_output=True,
        text=True,
    )
    said = done.stderr.splitlines()
    assert done.returncode == 2 and "error: " in done.stderr
    imported = {x.split("|")[-1].strip() for x in said if x.startswith("import time:")}
    assert "absl.flags" in imported and not imported & set(HEAVY)


# As the script `dpfl-privacy`, with a module that never ends its import.
INTERRUPTED = """
import sys, types
from experiments import commands
sys.path.insert(0, {folder!r})
commands.PACKAGE = "slow"
sys.argv = ["dpfl-privacy"]
commands.privacy()
"""


def test_an_interrupt_during_imports_has_no_traceback(tmp_path):
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "__init__.py").write_text("")
    (tmp_path / "slow" / "privacy.py").write_text(
        "import time\nprint('begun', flush=True)\n"
        "try:\n  time.sleep(10000)\nexcept BaseException:\n  raise ImportError('lost')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.format(folder=str(tmp_path))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=programs.ROOT,
    )
    with process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == "interrupted\n"
    assert process.returncode == 130


def test_fuzzed_command_lines_exit_cleanly():
    found = [x for name in ("privacy", "factorize") for x in fuzz.results(name, 20, 7)]
    assert len(found) == 40 and not [each for each in found if each["fault"]]


@pytest.mark.parametrize(
    ("code", "out", "err", "fault"),
    [
        (0, "epsilon 1.5", "", None),
        (0, "epsilon nan", "", "nan"),
        (0, "", "a.py:1: RuntimeWarning: overflow encountered in exp\n", "warning"),
        (1, "", "Traceback (most recent call last):\nValueError: no\n", "traceback"),
        (1, "", "", "exit code 1"),
        (-9, "", "", "exit code -9"),
        (None, "", "", "no end"),
        (2, "", "error: rounds must be at least 1, found 0\n", None),
        (2, "", "error: rounds must be at least 1\nand more\n", "no sentence"),
        (2, "", "error: a\nerror: rounds\n", "no sentence"),
        (2, "", "error: it must be at least 1, found 0\n", "no name"),
        (2, "", "error: there are no words, found 'junk'\n", None),
    ],
)
def test_fuzzer_fault_classification(code, out, err, fault):
    line = ["--output=x", "junk"]
    assert fuzz.fault_of(line, code, out, err, ["rounds", "output"]) == fault
