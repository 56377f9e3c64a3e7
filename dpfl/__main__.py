# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The commands of dpfl.

    python -m dpfl train --flagfile=tasks/digits.flags --seed=1

`python -m dpfl` lists them; `python -m dpfl privacy --help` runs one, as
`dpfl-privacy --help` does; `configs` prints the folder of the flag files,
`requirements` the file that pins TensorFlow Federated, and `--version` the version.
"""

import importlib.util
import sys

if importlib.util.find_spec("dpfl.experiments") is None:
    print(
        "error: dpfl is not installed: this is a source tree; pip install -e . "
        "installs it",
        file=sys.stderr,
    )
    sys.exit(2)
if __name__ == "__main__":
    importlib.import_module("dpfl.experiments.commands").main(sys.argv[1:])
