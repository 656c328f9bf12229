"""A pytest plugin, installed with the package: fixtures with the checks of infiniop_cy.testing.

    def test_mine(assert_ulp, every_value):
        x = every_value("float16")
        assert_ulp(my_sigmoid_backward(np.ones_like(x), x), exact(x), 1)

pytest loads it wherever the package is installed, so it stands outside of the package: nothing of that is imported
until a test asks for a fixture, which then needs the `check` extra.
"""
import pytest


def _fixture(name):
    @pytest.fixture(name=name, scope="session")
    def give():
        import infiniop_cy.testing
        return getattr(infiniop_cy.testing, name)
    give.__doc__ = f"infiniop_cy.testing.{name}"
    return give


assert_ulp, ulp_error, gradcheck, assert_invariant, special_values, every_value = map(_fixture, (
    "assert_ulp", "ulp_error", "gradcheck", "assert_invariant", "special_values", "every_value"))
