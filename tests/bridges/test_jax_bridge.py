"""What the bridge to JAX promises beyond values and gradients: transformations, and what XLA is asked to compute."""
import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
jnp = jax.numpy

import infiniop_cy as iop
from infiniop_cy.bridges import jax as bridge


def numbers(*shape, dtype="float32"):
    return jnp.asarray(np.random.default_rng(4).normal(size=shape), dtype)


def wanted(jaxpr):
    """What each convolution in a program is to compute, by the bits of core/conv/algorithm.pxi."""
    for equation in jaxpr.eqns:
        if equation.params.get("target_name") == "infiniop_cy_conv":
            yield int(np.asarray(dict(equation.params["attributes"])["numbers"].val)[-1])
        for value in equation.params.values():
            if hasattr(value, "jaxpr"):
                yield from wanted(value.jaxpr)


def loss(x, w, b):
    return jnp.square(bridge.gelu(bridge.conv(x, w, b, padding=1))).sum()


def reference(x, w, b):
    out = jax.lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)], precision="highest") + b[:, None, None]
    return jnp.square(jax.nn.gelu(out, approximate=False)).sum()


def test_jit_of_gradients():
    arrays = numbers(2, 3, 6, 5), numbers(4, 3, 3, 3), numbers(4)
    got = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*arrays)
    for one, expected in zip(got, jax.grad(reference, argnums=(0, 1, 2))(*arrays)):
        np.testing.assert_allclose(one, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("argnums", "bits"), [((0, 1, 2), 7), ((1, 2), 6), (0, 1)])
def test_only_what_is_needed_is_computed(argnums, bits):
    program = jax.make_jaxpr(jax.grad(loss, argnums=argnums))(numbers(1, 2, 4, 4), numbers(3, 2, 3, 3), numbers(3))
    assert list(wanted(program.jaxpr)) == [16, bits]


def test_vmap():
    x, w, b = numbers(5, 2, 2, 4, 4), numbers(3, 2, 3, 3), numbers(5, 3)
    got = jax.vmap(jax.grad(loss, argnums=1), (0, None, 0))(x, w, b)
    expected = jnp.stack([jax.grad(loss, argnums=1)(x[i], w, b[i]) for i in range(5)])
    assert jnp.array_equal(got, expected)
    mixed = jax.vmap(lambda s, x: bridge.tanh(x).sum() * s, (0, None))(b[:, 0], x)
    assert jnp.array_equal(mixed, bridge.tanh(x).sum() * b[:, 0])
    rows = jax.vmap(bridge.mish, in_axes=1, out_axes=1)(b)
    assert np.array_equal(rows, iop.mish(np.asarray(b)))


def test_threads_and_sizes():
    for shape in ((), (0, 3), (300, 501)):
        x = numbers(*shape)
        for threads in (None, 1, 3):
            assert np.array_equal(jax.jit(lambda x, n=threads: bridge.silu(x, num_threads=n))(x),
                                  iop.silu(np.asarray(x)))
    with pytest.raises(iop.BadParam, match="expected a positive integer"):
        bridge.silu(numbers(3), num_threads=0)
    assert bridge.conv(numbers(0, 2, 5), numbers(3, 2, 2)).shape == (0, 3, 4)


def test_many_at_once():
    """XLA's threads call without the GIL; each result is its own."""
    x = numbers(40_000)
    results = [jax.jit(lambda x, k=k: bridge.gelu(x * k))(x) for k in range(20)]
    for k, result in enumerate(results):
        assert np.array_equal(result, iop.gelu(np.asarray(x * k)))


def test_errors_are_raised_where_a_function_is_traced():
    with pytest.raises(iop.BadTensorDtype, match="relu: input has dtype int32"):
        jax.jit(bridge.relu)(jnp.arange(3, dtype="int32"))
    with pytest.raises(iop.BadTensorShape, match="conv: weight spans 4 on axis 2, dilation included"):
        jax.jit(bridge.conv)(numbers(1, 1, 3), numbers(1, 1, 4))
    with pytest.raises(iop.BadParam, match=r"celu: alpha is -1\.0, expected above 0"):
        bridge.celu(numbers(3), alpha=-1)
    with pytest.raises(iop.BadTensorDtype, match="conv: weight has dtype float16"):
        bridge.conv(numbers(1, 1, 3), numbers(1, 1, 2, dtype="float16"))


def test_a_second_derivative_is_refused():
    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.grad(jax.grad(lambda x: bridge.gelu(x)))(1.0)


def test_xla_is_told_what_was_not_checked():
    """A call that no bridge made: the rule that it breaks comes back."""
    x = numbers(3)
    call = jax.ffi.ffi_call("infiniop_cy_elementwise", jax.ShapeDtypeStruct((4,), "float32"))
    with pytest.raises(Exception, match="infiniop_cy: rule 1101"):
        jax.block_until_ready(call(x, formula="relu", values=np.zeros(1), threads=np.zeros(1, np.int64)))
