# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Packaging of dpfl: one top-level package, with the commands and the flag files.

Figures of papers and benchmarks stay in the clone (`LEFT` and `LEFT_MODULES`).

What needs no TensorFlow installs with any Python from 3.9 to 3.13. The extra `jax` adds
training in JAX from Python 3.11 on, and `cuda` the same for NVIDIA's cards; `flower`
adds Flower, without its simulation engine, from Python 3.11 on too. The extra
`tff` adds TensorFlow Federated 0.87 on the one platform that it is published for. That
release asks for a jaxlib that is gone, so no resolver can install the extra today;
`dpfl/requirements-tff.txt` is a tested set to be installed with --no-deps instead.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
VERSION = re.search(
    r'^__version__ = "(.+)"$', (HERE / "dpfl/__init__.py").read_text(), re.M
).group(1)
COMMANDS = (
    *("train", "privacy", "factorize", "audit"),
    *("compare", "search", "sweep", "new-task", "prepare"),
)
LEFT = ("experiments.papers", "experiments.benchmarks")
LEFT_MODULES = ("reproduce", "benchmark")
FLAG_FOLDERS = ("tasks", "chen2022", "dome2025")
WHERE_TFF_IS = (
    '; sys_platform == "linux" and platform_machine == "x86_64" '
    'and python_version < "3.12"'
)


def with_jax(jax):
    """Returns the requirements of training in JAX, which wants numpy 2 and no TFF."""
    needed = (jax, "psutil>=6", "scikit-learn>=1.6,<2", "tensorboard>=2.21,<3")
    return [f'{requirement}; python_version >= "3.11"' for requirement in needed]


class BuildPy(build_py):
    """A build without `LEFT_MODULES`."""

    def find_package_modules(self, package, package_dir):
        """Returns package, name and path of the modules of a package."""
        found = super().find_package_modules(package, package_dir)
        is_mixed = package == "dpfl.experiments"
        return [one for one in found if not is_mixed or one[1] not in LEFT_MODULES]


def mapped_packages():
    """Returns the packages of the wheel: `experiments` and `configs` go into dpfl."""
    ours = find_packages(include=["dpfl", "dpfl.*"])
    binaries = find_packages(include=["experiments", "experiments.*"], exclude=LEFT)
    return [*ours, *(f"dpfl.{name}" for name in binaries), "dpfl.configs"]


setup(
    name="dpfl",
    version=VERSION,
    description="Differential privacy and communication in federated learning, on TFF",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Intended Audience :: Science/Research",
        "Operating System :: OS Independent",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(9, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Security :: Cryptography",
        "Typing :: Typed",
    ],
    python_requires=">=3.9",
    packages=mapped_packages(),
    cmdclass={"build_py": BuildPy},
    package_dir={"dpfl.experiments": "experiments", "dpfl.configs": "configs"},
    package_data={
        "dpfl": ["py.typed", "privacy_coverage.csv", "requirements-tff.txt"],
        "dpfl.pages": ["elements.css"],
        "dpfl.tasks": ["mnist_writers.npz", "mnist_writers.LICENSE"],
        "dpfl.experiments": ["*.csv", "audits/*.csv", "templates/*.txt"],
        "dpfl.configs": [f"{name}/*.flags" for name in FLAG_FOLDERS],
    },
    include_package_data=False,
    zip_safe=False,
    install_requires=[
        "absl-py>=1.4,<3",
        "attrs>=23.1",
        "dp-accounting>=0.4.3,<0.7",
        "matplotlib>=3.9,<4",
        "numpy>=1.25,<3",
        "scipy>=1.9.3,<2",
        "tqdm>=4.66,<5",
    ],
    extras_require={
        "jax": with_jax("jax>=0.8,<0.13"),
        "cuda": with_jax("jax[cuda12]>=0.8,<0.13"),
        "flower": ['flwr>=1.38,<1.43; python_version >= "3.11"'],
        "tff": [
            requirement + WHERE_TFF_IS
            for requirement in (
                "psutil>=6",
                "scikit-learn>=1.6,<2",
                "tensorboard>=2.14,<2.15",
                "tensorflow>=2.14,<2.15",
                "tensorflow-federated>=0.87,<0.88",
                "tensorflow-privacy>=0.9,<0.10",
            )
        ],
    },
    entry_points={
        "console_scripts": [
            f"dpfl-{name} = dpfl.experiments.commands:{name.replace('-', '_')}"
            for name in COMMANDS
        ]
    },
)
