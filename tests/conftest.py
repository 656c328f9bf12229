"""Fixtures of all tests."""
import numpy as np
import pytest
from hypothesis import settings

# Examples are derived from the test alone: a failure in CI is the failure at home.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("default")


@pytest.fixture
def rng():
    return np.random.default_rng(20240)
