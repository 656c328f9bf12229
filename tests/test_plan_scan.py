"""Plans of ten thousand random convolutions, without computing: what decides the order of sums sees neither threads nor
batch, and no shape, empty ones included, makes planning or explaining fail."""
import random

import pytest

import infiniop_cy as iop
from infiniop_cy.testing import DTYPES
from infiniop_cy.testing.conv import random_geometry

SHAPES = 16_000  # of the forward and of the gradients, half each


def orders(case, batch, dtype, threads, cls):
    """Algorithms and orders of the plan of a descriptor's class."""
    (_, cout, *out), (_, cin, *size), kernel = case.shapes
    stride, pads, dilation, groups = case.geometry
    tensors = [iop.TensorDescriptor(shape, dtype) for shape in ((batch, cout, *out), (batch, cin, *size), kernel)]
    with iop.threads(threads), cls(
            iop.Handle("cpu"), *tensors, None, [before for before, _ in pads], stride, dilation, groups) as op:
        facts = op.plan.facts
        assert op.explain()
    return [step["orders"] for step in facts["steps"]]


@pytest.mark.parametrize("part", range(4))
def test_orders_see_neither_threads_nor_batch(part):
    rng = random.Random(part)
    left = SHAPES // 4
    while left:
        case = random_geometry(rng.randint, products=(0, 1 << rng.randint(10, 30)), elements=1 << 24)
        if any(before != after for before, after in case.geometry[1]):  # descriptors pad alike on both sides
            continue
        left -= 1
        dtype, cls = rng.choice(DTYPES), rng.choice((iop.ConvDescriptor, iop.ConvBackwardDescriptor))
        expected = orders(case, case.batch, dtype, 1, cls)
        for batch, threads in ((case.batch, rng.choice((2, 3))), (case.batch, 7), (case.batch, 64), (1, 1), (1, 64),
                               (max(1, 3 * case.batch), 3)):
            assert orders(case, batch, dtype, threads, cls) == expected, \
                f"{cls.__name__}, {case!r} {dtype}, {batch}, {threads} threads"
