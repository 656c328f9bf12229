"""Fixtures of all tests."""
import os

# The reference's small products lose more to waking BLAS threads than they gain.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings

# Examples are derived from the test alone: a failure in CI is the failure at home.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("default")


@pytest.fixture
def rng():
    return np.random.default_rng(20240)
