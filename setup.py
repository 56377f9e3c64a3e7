# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Packaging of dpfl.

TensorFlow Federated 0.87 asks for a jaxlib that is no longer published, so a plain
`pip install .` cannot resolve; `tools/setup.sh` installs a tested set instead.
"""

import re
import sys
from pathlib import Path

if sys.platform != "linux" or not (3, 9) <= sys.version_info[:2] <= (3, 11):
    sys.exit(
        "error: dpfl needs Linux and Python 3.9, 3.10 or 3.11, the only ones that "
        "TensorFlow Federated 0.87 is published for; found "
        f"{sys.platform} and Python {sys.version_info[0]}.{sys.version_info[1]}."
    )

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(
    r'^__version__ = "(.+)"$', (HERE / "dpfl/__init__.py").read_text(), re.M
).group(1)

setup(
    name="dpfl",
    version=VERSION,
    description="Differential privacy and communication in federated learning, on TFF",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.9,<3.12",
    packages=find_packages(include=["dpfl", "dpfl.*", "experiments", "experiments.*"]),
    install_requires=[
        "absl-py>=1.4,<2",
        "attrs>=23.1,<24",
        "dp-accounting>=0.4.3,<0.5",
        "matplotlib>=3.9,<4",
        "numpy>=1.25,<2",
        "psutil>=5.9",
        "scikit-learn>=1.6,<2",
        "scipy>=1.9.3,<2",
        "tensorboard>=2.14,<2.15",
        "tensorflow>=2.14,<2.15",
        "tensorflow-federated>=0.87,<0.88",
        "tensorflow-privacy>=0.9,<0.10",
        "tqdm>=4.66,<5",
    ],
    extras_require={
        "dev": [
            "hypothesis>=6.100",
            "mypy>=1.10",
            "pytest>=8",
            "pytest-xdist>=3",
            "ruff>=0.5",
        ]
    },
    entry_points={
        "console_scripts": [
            "dpfl-train = experiments.train:run",
            "dpfl-privacy = experiments.privacy:run",
            "dpfl-reproduce = experiments.reproduce:run",
            "dpfl-benchmark = experiments.benchmark:run",
            "dpfl-factorize = experiments.factorize:run",
        ]
    },
)
