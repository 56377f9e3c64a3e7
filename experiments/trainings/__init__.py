# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Many runs of `dpfl-train` as one piece of work, for sweeps, searches and figures.

    work = sweep.training_work({"seed": 1}, {"task": "digits", "seed": 1})
    parallel_runs.do([work], table, folder, [work])

`sweep` has the work and its table of results, `trainers` the processes that train,
`parallel_runs` their order, `tuning` the choice of settings.
"""
