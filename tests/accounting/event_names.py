# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Short names of the events and relations that most tests of accounting use."""

import dp_accounting

from dpfl import accounting
from dpfl.accounting import random_allocation

GAUSSIAN = dp_accounting.GaussianDpEvent
LAPLACE = dp_accounting.LaplaceDpEvent
SELF = dp_accounting.SelfComposedDpEvent
COMPOSED = dp_accounting.ComposedDpEvent
POISSON = dp_accounting.PoissonSampledDpEvent
DRAWN = dp_accounting.SampledWithoutReplacementDpEvent
TREE = dp_accounting.SingleEpochTreeAggregationDpEvent
L2 = accounting.SparsifiedGaussianDpEvent
LINF = accounting.LinfSparsifiedGaussianDpEvent
SLOT = random_allocation.RandomAllocationDpEvent
UNSUPPORTED = dp_accounting.UnsupportedEventError
ADD = accounting.Relation.ADD_OR_REMOVE_ONE
ZEROS = accounting.Relation.REPLACE_SPECIAL
ONE = accounting.Relation.REPLACE_ONE
