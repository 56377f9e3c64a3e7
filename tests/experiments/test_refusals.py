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

from dpfl import __main__
from experiments import cli
from tests import forks
from tests.experiments import programs
from tools import fuzz

HUGE = str(10**23)
EPSILON = "epsilon --noise_multiplier=1"
ONCE = "--participation=once_per_epoch"
FLOAT = "must be a finite number"
BANDS = "bands --epsilon=8 --population=400 --rounds=12 --accounting_method=rdp"
TINY = "--task=synthetic --model=small_cnn --num_clients=12 --cohort_size=4 --rounds=24 --compression_rate=20"
# From a line to what its one sentence says, by binary.
REFUSED = {
    "privacy": {
        "": "the command must be one of epsilon, calibrate, explain, compare, bits, bands, found nothing",
        "forget": "found forget",
        "calibrate --nonsense=1": "nonsense",
        "calibrate --epsilon=many": "--epsilon",
        "calibrate --epsilon=nan": "--epsilon",
        "calibrate --epsilon=-1": "--epsilon",
        "calibrate --epsilon=1 --delta=0": "--delta",
        "calibrate": "--epsilon must be given",
        "calibrate --epsilon=1 --keep_fraction=0.5": "--keep_fraction",
        "calibrate --epsilon=1 --mechanism=sketched_ddg": "--bits must be given for sketched_ddg",
        "calibrate --epsilon=1 --mechanism=magic": "--mechanism",
        "calibrate --epsilon=1 --noise_multiplier=1": "--noise_multiplier",
        "calibrate --epsilon=1 --population=5": "--cohort_size must be at most the population of 5 clients, found 100",
        "calibrate --epsilon=1 --output=/no/such/a": "--output",
        "calibrate --epsilon=1 --output=/tmp": "--output must be a regular file",
        "calibrate --epsilon=1e30": "--epsilon must be smaller for gaussian",
        "bits --epsilon=8 --widths=0": "--widths must be at least 1, found 0",
        "bits --epsilon=8 --widths=1,x": "--widths must be whole numbers with commas between them, found '1,x'",
        "bands": "--epsilon must be given for bands",
        f"{BANDS} --bands=1,x": "--bands must be positive whole numbers",
        f"{BANDS} --bands=0": "--bands must be positive whole numbers with commas between them, found '0'",
        f"{BANDS} --bands=5": "bands must be",
        f"{BANDS} --participation=fixed": "--participation must be one of cyclic_poisson, once_per_epoch",
        f"{BANDS} --participation=balls_in_bins --mechanisms=sgmf": "--mechanisms must be matrix_factorization for balls_in_bins, of which nothing is dropped, found sgmf",
        f"{BANDS} --participation=b_min_separation --compression_rates=10": "--compression_rates must be 1 for b_min_separation, found 10",
        f"{BANDS} --mechanisms=gaussian": "--mechanisms must be one of matrix_f",
        f"{BANDS} --sketch_size=3": "--sketch_size has no meaning for bands",
        f"{BANDS} --matrix_method=blt": "matrix_method must be one of banded",
        "epsilon": "--noise_multiplier must be given",
        "epsilon --noise_multiplier=1e200": "--noise_multiplier must be 0, or",
        "epsilon --noise_multiplier=1e-200": "--noise_multiplier must be 0, or",
        "compare --epsilon=1 --compression_rates=0.5": "--compression_rates",
        "compare --epsilon=1 --mechanisms=magic": "--mechanisms",
        "compare --epsilon=1 --plot=/no/such/a.png": "--plot",
        "compare --equal=error --mean_squared_error=1 --epsilon=1": "--epsilon has no meaning",
        "compare --equal=error --mean_squared_error=1 --bits=auto": "--bits must be a number for compare --mean_squared_error",
        "compare --epsilon=1 --mechanisms=gaussian --sketch_size=5": "--sketch_size has no meaning",
        f"{EPSILON} --rounds=2.5": "--rounds must be an integer, found '2.5'",
        f"{EPSILON} --clip_norm=x": "--clip_norm must be a number, found 'x'",
        f"{EPSILON} --json=maybe": "--json must be true or false, found 'maybe'",
        f"{EPSILON} --participation=x": "--participation must be one of b_min_separation, balls_in_bins, cyclic_poisson, fixed, once_per_epoch, poisson, random_allocation, without_replacement, found 'x'",
        f"{EPSILON} --delta=1.0": "error: --delta must be at least 1e-300 and less than 1, found 1.0",
        f"{EPSILON} --roundss=2": "error: --roundss is no flag of this command; did you mean --rounds or --rounds_per_epoch",
        f"{EPSILON} --rounds": "error: --rounds must have a value, found none",
        f"{EPSILON} --flagfile=none": "error: --flagfile must be a readable file, or one of chen2022/digits.flags",
        f"{EPSILON} --flagfile none": "error: --flagfile must be a readable file, or one of chen2022/digits.flags",
        "compare --epsilon=8 --keep_fraction=0.1": "--keep_fraction has no meaning for compare, which has --compression_rates",
        "compare --epsilon=8 --mechanism=gaussian": "--mechanism has no meaning for compare, which has --mechanisms",
        f"{EPSILON} --mechanism=project_and_perturb --sketch_clip=1e308": "--sketch_clip must be at least 1e-09 and at most 1000000000",
        f"{EPSILON} --mechanism=sparse_recovery --bits=16 {ONCE} --measurements=1e308": "--measurements must be at least 1e-09 and at most 1000000000",
        f"{EPSILON} --mechanism=sparse_recovery --bits=16 {ONCE} --solver_steps={HUGE}": "--solver_steps must be at most 1000000",
        f"{EPSILON} --adaptive_clipping --count_stddev=1e-300": "--count_stddev must be at least 1e-100",
        f"epsilon --mechanism=distributed_discrete_gaussian --bits=16 {ONCE} --noise_multiplier=1e308": "--noise_multiplier must be 0, or from 1e-100 to 1e100",
        "epsilon --noise_multiplier=1e30": "--noise_multiplier must be at most 1e+09",
        f"{EPSILON} --rounds={HUGE}": "--rounds must be at most 1000000000",
        f"{EPSILON} --rounds={10**400}": "--rounds must be at most 1000000000",
        f"{EPSILON} --dimension={HUGE}": "--dimension must be at most 1000000000000",
        f"{EPSILON} --mechanism=project_and_perturb --sketch_length={HUGE}": "--sketch_length must be at most 1048576",
        f"{EPSILON} --output=/dev/full": "--output must be a regular file, found the device /dev/full",
        f"{EPSILON} --output=full": "--output must be a regular file, found the device full",
        f"{EPSILON} --output=pipe": "--output must be a regular file, found the pipe pipe",
        f"{EPSILON} --output=dangling": "--output must be a file in a writable folder",
        f"{EPSILON} --output=name/": "--output must be a file's path, found 'name/'",
        f"{EPSILON} --output={'a' * 250}": "--output must be a file in a writable folder",
        f"{EPSILON} --flagfile=pipe": "--flagfile must be a regular file, found the pipe pipe",
        f"{EPSILON} --flagfile pipe": "--flagfile must be a regular file, found the pipe pipe",
        f"{EPSILON} --nojson=1": "--nojson=1 does not take an argument",
        "compare --epsilon=8 --plot=x.abc": "--plot must end in .png, found x.abc",
        "compare --epsilon=8 --plot=a.png --output=a.png": "--plot must be another file than --output, found a.png",
        f"calibrate --epsilon=8 --mechanism=matrix_factorization {ONCE} --rounds_per_epoch=100000 --rounds=100000 --population=10000000": "--rounds_per_epoch must be at most 8192",
        f"{EPSILON} --mechanism=matrix_factorization {ONCE} --rounds_per_epoch=4 --population=400 --matrix_file=pipe": "--matrix_file must be a regular file, found the pipe pipe",
        f"{EPSILON} --mechanism=matrix_factorization {ONCE} --rounds_per_epoch=4 --population=400 --matrix_cache=/proc/version": "--matrix_cache must be a writable folder, found /proc/version",
    },
    "factorize": {
        "": "the command must be one of compute, compare, time, found nothing",
        "melt": "found melt",
        "compute --matrix_method=blt": "--matrix_buffers must be given for --matrix_method=blt",
        "compute --rounds=8,x": "--rounds must be positive integers",
        "compute --rounds=8,16": "--rounds must be one number for compute, found 2",
        "compare --epochs=2": "--separation must be given",
        "compute --rtol=nan": FLOAT,
        "compute --matrix_bands=3": "--matrix_bands has no meaning for the method optimal",
        "compute --output=.": "--output must be a regular file, found the folder",
        "compare --plot=/proc/no/x.png": "--plot must be a file in a writable folder",
        "compute --matrix_cache=/proc/no": "--matrix_cache must be a writable folder, found /proc/no",
        "compute --matrix_method=toeplitz --matrix_bands=auto": "--epsilon must be given for --matrix_bands=auto",
        "compute --matrix_bands=auto --epsilon=1": "--matrix_bands must be a number for --matrix_method=optimal, found auto",
        "compute --population=9": "--population has no meaning for bands that are given",
        "compute --matrix_momentum=1.5": "error: --matrix_momentum must be at least 0 and less than 1, found 1.5",
        "compute --rounds=0": "error: --rounds must be positive integers separated by commas, found '0'",
        "compute --rounds=16 --matrix_method=banded": "error: --matrix_bands must be given for --matrix_method=banded",
        "compute --rounds=100000": "--rounds must be at most 8192 for a dense matrix, found 100000",
        "compute --rounds=100000 --matrix_method=honaker-online": "--rounds must be at most 8192",
        "compute --rounds=100000 --matrix_method=banded --matrix_bands=3": "--rounds must be at most 8192",
        "compute --rounds=100000 --matrix_method=toeplitz": "--matrix_bands must be at most 10737 for 100000 rounds, found 100000",
        "compute --rounds=100000 --matrix_method=blt --matrix_buffers=2 --epochs=50000 --separation=2": "--epochs must be at most 10737 for 100000 rounds",
        f"compute --rounds={HUGE}": "--rounds must be at most 1000000",
        f"compute --matrix_schedule=drop --drop_factor={HUGE}": "--drop_factor must be at least 1e-09 and at most 1000000000",
        "compute --rounds=16 --epochs=2 --separation=100": "--epochs must be at most 1 for --separation=100 in 16 rounds, found 2",
        "compute --rounds=16 --separation=100": "--separation has no meaning for --epochs=1",
        "compute --rounds=16 --drop_factor=0.5": "--drop_factor has no meaning for --matrix_schedule=constant",
        "compute --rounds=16 --plot=": "--plot has no meaning for compute",
        "compute --rounds=16 --objective=last": "--objective has no meaning for the method optimal",
        "time --rounds=16 --epochs=2": "--epochs has no meaning for time",
        f"time --rounds=16 --repeats={2**31}": "--repeats must be at least 1 and at most 1000",
        "compare --rounds=16 --plot=x.abc": "--plot must end in .png, found x.abc",
        "compute --rounds=8 --matrix_schedule=drop --drop_factor=1e9": "--rtol must be",
        "compute --rounds=16 --output=/dev/full": "--output must be a regular file, found the device /dev/full",
        "compute --rounds=16 --matrix_cache=file": "--matrix_cache must be a writable folder, found file",
        f"compute --rounds=16 --matrix_momentum={10**400}": f"--matrix_momentum {FLOAT}",
    },
    "train": {
        f"{TINY} --rounds=0": "--rounds must be at least 1, found 0",
        f"{TINY} --client_lr=nan": "client_lr",
        f"{TINY} --client_lr=-1": "--client_lr must be greater than 0",
        f"{TINY} --noise_multiplier=1e30": "--noise_multiplier must be at least 0 and at most",
        f"{TINY} --delta=1.5": "--delta must be at least 1e-300 and less than 1",
        f"{TINY} --server_momentum=1": "--server_momentum must be at least 0 and less than 1",
        f"{TINY} --seed=-1": "--seed must be at least 0",
        f"{TINY} --mechanism=gaussian": "--compression_rate has no meaning for gaussian",
        f"{TINY} --compression_rate=0.5": "--compression_rate must be at least 1, found 0.5",
        f"{TINY} --compression_rate=inf": "--compression_rate must be a finite number, found inf",
        f"{TINY} --keep_fraction=0.1": "--compression_rate must be left out with --keep_fraction",
        f"{TINY} --vocab_size=5": "--vocab_size has no meaning for the task synthetic",
        f"{TINY} --weighted": "--weighted must be left out",
        f"{TINY} --batch_size=x": "batch_size",
        f"{TINY} --model=resnet": "--model must be one of",
        f"{TINY} --participation=never": "participation",
        f"{TINY} --no_such_flag": "no_such_flag",
        f"{TINY} --mechanism=sketched_ddg --noise_source=helpers --bits=2 --noise_multiplier=0.01": "--bits must be at least",
        f"{TINY} --mechanism=sgmf {ONCE} --matrix_file=/none.npz": "--matrix_file must be a readable file, found /none.npz",
        f"{TINY} what": "positional",
        "--flagfile=tasks/digits.flags --mechanism=none --epsilon=2": "error: --epsilon has no meaning for none",
        "--compression_rate=1e9": "error: --epsilon must be larger",
        "--max_examples_per_client=x": "--max_examples_per_client must be an integer, or 'none', found 'x'",
        "--task=docs --lstm_size=1000000000": "--lstm_size must be at most 100000, found 1000000000",
        "--task=docs --lstm_size=100000 --embedding_size=100000": "--vocab_size, --embedding_size and --lstm_size must be so small that the model has at most 1e+08 parameters",
        f"--batch_size={2**63}": "--batch_size must be at most 1000000000",
        f"--shuffle_seed={2**63}": "--shuffle_seed must be at most 9223372036854775807",
        f"--partition_seed={2**32}": "--partition_seed must be at most 4294967295",
        "--task=synthetic --num_clients=1000000000": "--num_clients must be at most 10000000",
        "--workers=first": "--workers must be HOST:PORT each, found 'first'",
        "--workers=a:1,a:1": "--workers must be different ones, found 'a:1'",
        "--workers=a:1 --mechanism=none --weighted": "--workers must be left out with weighted, found 'a:1'",
        "--concurrency=1000000": "--concurrency must be at most 1000, found 1000000",
        "--round_deadline=1e300": "--round_deadline must be greater than 0 and at most 10000000",
        "--epsilon=1e308": "--epsilon must be greater than 0 and at most 1000000, found 1e+308",
        f"--checkpoint_every={HUGE}": "--checkpoint_every must be at most 10000000",
        f"--seed={2**256}": "--seed must be at most",
        "--mechanism=none --delta=0.1": "--delta has no meaning for none",
        "--target_quantile=0.3 --mechanism=gaussian": "--target_quantile must be left out without --adaptive_clipping, found 0.3",
        "--output_dir=file": "--output_dir must be a writable folder, found file",
    },
    "benchmark": {
        "--rows=plain,fast": "'fast'",
        "--output=missing/x": "--output must be a file in a writable folder, found missing/x",
        "--repeats=1001": "--repeats must be an integer in the range [1, 1000], found '1001'",
        "--rows=": "--rows must be",
        "--peers=tff=x": "--peers must be some of tff, pfl and fedjax, each once, the last two with =PYTHON if another interpreter has them, found 'tff=x'",
        "--peers=tff,tff": "found 'tff'",
        "--peers=": "found ''",
        "--peers=pfl": "found no pfl with",
        "--peers=fedjax=missing": "found no fedjax with missing; pip install fedjax 'jax<0.6' in an environment ENV installs it for --peers=fedjax=ENV/bin/python",
        "--peers=tff --rows=plain": "--rows must be 'all' or some of cnn_50, cnn_1000, lstm_50, lstm_1000, found 'plain'",
        "--peers=tff --processes=1": (
            "--processes must be at least 2 for --peers, found 1"
        ),
        "--peers=tff --repeats=3": "--repeats has no meaning for --peers",
    },
    "compare": {
        "": "RUN must be the output folder of a run, found none",
        "RUN --json --csv": "--csv must be left out beside --json",
        "RUN --html=a.txt": "--html must end in .html",
    },
    "reproduce": {
        "--figure=no_such": "found 'no_such'\n",
        "--figure=csmg_fig1": "found 'csmg_fig1'; did you mean csgm_fig1\n",
        "--figure=csgm_fig1 --scale=large": "scale",
        "--figure=csgm_fig1 --plot_only": "plot_only",
        "--figure=csgm_fig1 --scale=medium": "--scale of csgm_fig1 must be",
        "--figure=csgm_fig2 --plot_only --workers=a:1": "--workers has no",
        "--figure=csgm_fig2 --allow_partial_data": "--allow_partial_data has no",
        "--figure=csgm_fig2 --download": "--download has no",
        "--figure=csgm_fig1 --from_table=a --table=b": "--table has no",
        "--figure=csgm_fig1 --from_table=a": "--from_table must be a readable file",
        "--figure=mf_fig4 --from_table=a": "--from_table must be left out",
        "--figure=csgm_fig1 --table=a.png": "--table must end in .csv",
        "--figure=csgm_fig2 --workers=a": "--workers must be",
        "--figure=csgm_fig2 --round_deadline=0": "--round_deadline must be",
        "csgm_fig1": "csgm_fig1",
        "--figure=csgm_fig1 --scale=paper --data_dir=/nonexistent": "--data_dir must be a folder with data files, found '/nonexistent'",
        "--figure=csgm_fig1 --data_dir=folder": "--data_dir has no meaning for --scale=small",
        "--figure=csgm_fig1 --plot_only --jobs=2": "--jobs has no meaning for --plot_only",
        "--figure=csgm_fig1 --jobs=1000000": "--jobs must be at most 1000",
        "--figure=csgm_fig1 --output_dir=file": "--output_dir must be a writable folder",
        "--figure=csgm_fig1 --output_dir=loop": "--output_dir must be a writable folder",
        "--figure=csgm_fig1 --output_dir=": "--output_dir must be a folder's path",
    },
}


@pytest.mark.parametrize("binary", REFUSED)
def test_bad_command_line_is_a_one_line_error(binary, tmp_path):
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{json.dumps(x.split())}\n" for x in REFUSED[binary]))
    words = ("tools.fuzz", f"--serve={binary}", "--given")
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
        (found, sentence)
        for found, sentence in zip(results, REFUSED[binary].values())
        if found["code"] != 2 or sentence not in found["said"] or found["fault"]
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
        assert process.stderr.read() == (
            "error: stdout cannot be written: No space left on device\n"
        )
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
    ("line", "code", "sentence"),
    [
        (f"{{}} --{'a' * 1200}=1", 2, b"error: --a"),
        (f"{{}} --rounds={'9' * 5000}", 2, b"error: --rounds"),
        ("{} >&-", 1, b"error: stdout cannot be written: it is closed"),
        ("{} 2>&- >&- <&-", 1, b""),
        # Neither is taken for the file.
        ("{} --output=$OUT 2>&- >&- <&-; cat $OUT >&2", 0, b"mechanism"),
        ("{} --nosuch 2>/dev/full", 2, b""),
        ("ulimit -v 100000; exec {}", 1, b"error: memory ran out"),
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
def test_closed_or_redirected_streams_are_handled(line, code, sentence, tmp_path):
    done = ended(line, OUT=str(tmp_path / "out"))
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(sentence)
    assert b"Traceback" not in done.stderr and len(done.stderr) < 2000


@pytest.mark.parametrize(
    ("rest", "sentence"), [(">&-", "it is closed"), (">/dev/full", "No space left")]
)
def test_unprintable_command_list_is_an_error(rest, sentence):
    words = shlex.join([sys.executable, "-m", "dpfl"])
    line = ["bash", "-c", f"{words} {rest}"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=programs.ROOT)
    assert done.returncode == 1
    assert done.stderr.startswith("error: stdout cannot be written: " + sentence)


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
    "benchmark": "--rows=magic",
    "reproduce": "--figure=magic",
    "worker": "--port=x",
    "compare": "nowhere",
    "search": "--runs=0",
}


@pytest.mark.parametrize("binary", __main__.COMMANDS)
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
from dpfl import __main__
sys.path.insert(0, {folder!r})
__main__.BINARIES = "slow"
sys.argv = ["dpfl-privacy"]
__main__.privacy()
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
