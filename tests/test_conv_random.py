"""conv_backward on random geometries: what a chosen shape does not meet, one of these does."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_conv import blanks, check_values, conv

from infiniop_cy.testing import DTYPES
from infiniop_cy.testing.conv import make_case, random_geometry, reference_conv_backward

each_dtype = pytest.mark.parametrize("dtype", DTYPES)


@st.composite
def geometries(draw):
    return random_geometry(lambda low, high: draw(st.integers(low, high)))


def random_case(seed):
    rng = np.random.default_rng(seed)
    return random_geometry(lambda low, high: int(rng.integers(low, high + 1))), rng


@each_dtype
@pytest.mark.parametrize("block", range(8))
def test_exact_on_random_geometries(block, dtype):
    """Small integers, so that every sum is exact, whatever its order; a block is 250 seeds."""
    for seed in range(250 * block, 250 * block + 250):
        case, rng = random_case(seed)
        data = make_case(case, dtype, rng)
        got = conv(case, data, out=blanks(case, dtype), num_threads=seed % 3 + 1)
        check_values(got, reference_conv_backward(*data, *case.geometry), f"seed {seed}: {case!r}")


@settings(max_examples=100)
@given(geometries(), st.sampled_from(DTYPES), st.integers(0, 9))
def test_exact_on_drawn_geometries(case, dtype, seed):
    """The same, for hypothesis to make small what fails."""
    data = make_case(case, dtype, np.random.default_rng(seed))
    got = conv(case, data, out=blanks(case, dtype))
    check_values(got, reference_conv_backward(*data, *case.geometry), repr(case))
