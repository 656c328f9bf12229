"""What published C clients do otherwise than the headers' authors: 32-bit lists, other spellings, other operators."""
import ctypes
import mmap
import pathlib
import re
import textwrap

import numpy as np
import pytest
from test_capi import SYMMETRIC, P, S, address, describe, handle, library  # noqa: F401
from test_capi import pytestmark as pytestmark

import infiniop_cy as iop
from infiniop_cy.capi import infini_root
from infiniop_cy.operators import OPERATORS, values_of
from infiniop_cy.testing import CASES, DTYPES, random_values, same_bits
from infiniop_cy.testing.conv import make_case

SPELLINGS = [(operator, spelling, formula) for operator in OPERATORS for spelling, formula in operator.spellings]
DOCUMENT = pathlib.Path(__file__).parent.parent / "docs/c-api.md"


class BeforeAWall:
    """Lists that end where memory does: one byte read too far is a crash."""

    def __init__(self):
        self._pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(P(self._start + mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0

    def list(self, values, dtype):
        values = np.asarray(values, dtype)
        at = mmap.PAGESIZE - values.nbytes
        self._pages[at:mmap.PAGESIZE] = values.tobytes()
        return P(self._start + at)


@pytest.fixture(scope="module")
def walls():
    return [BeforeAWall() for _ in range(3)]


def create(library, handle, walls, data, lists, groups, dtype):  # noqa: F811
    """(status, operator descriptor); lists: pads, strides, dilations, of entries of that dtype."""
    made = P()
    status = library.infiniopCreateConvBackwardDescriptor(
        handle, ctypes.byref(made), *(describe(library, a) for a in data), None,
        *(wall.list(values, dtype) for wall, values in zip(walls, lists)), ctypes.c_size_t(groups))
    return status, made


@pytest.mark.parametrize("dtype", [np.int32, np.int64], ids=["32 bits", "64 bits"])
@pytest.mark.parametrize("name", SYMMETRIC)
def test_lists_of_either_width(name, dtype, walls, library, handle, rng):  # noqa: F811
    case = SYMMETRIC[name]
    data = make_case(case, "float32", rng)
    stride, pads, dilation, groups = case.geometry
    status, op = create(library, handle, walls, data, ([p[0] for p in pads], stride, dilation), groups, dtype)
    assert status == S.SUCCESS
    size = ctypes.c_size_t()
    assert library.infiniopGetConvBackwardWorkspaceSize(op, ctypes.byref(size)) == S.SUCCESS
    workspace = np.empty(size.value, np.uint8)
    outs = [np.empty_like(data[1]), np.empty_like(data[2])]
    assert library.infiniopConvBackward(op, address(workspace), size, *map(address, (*outs, None, *data)), None) == 0
    assert all(map(same_bits, outs, iop.conv_backward(*data, **case.keywords)))
    assert library.infiniopDestroyConvBackwardDescriptor(op) == S.SUCCESS


@pytest.mark.parametrize("dtype", [np.int32, np.int64], ids=["32 bits", "64 bits"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_mistakes_in_either_width(axes, dtype, walls, library, handle):  # noqa: F811
    ones = np.ones((1, 1, *(1,) * axes), np.float32)
    good = [0] * axes, [1] * axes, [1] * axes
    for which, wrong in ((0, -1), (1, 0), (1, -1), (2, 0), (2, -1)):
        for axis in range(axes):
            lists = [list(values) for values in good]
            lists[which][axis] = wrong
            assert create(library, handle, walls, [ones] * 3, lists, 1, dtype)[0] == S.BAD_PARAM, (lists, axis)
    assert create(library, handle, walls, [ones] * 3, good, 1, dtype)[0] == S.SUCCESS


def test_wide_entries_past_32_bits_are_not_taken_for_others(walls, library, handle):  # noqa: F811
    ones = np.ones((1, 1, 1, 1), np.float32)
    for lists in (([0, 0], [2**32 + 1, 1], [1, 1]), ([0, 0], [1, 1], [2**32 + 1, 1])):
        assert create(library, handle, walls, [ones] * 3, lists, 1, np.int64)[0] == S.BAD_PARAM


@pytest.mark.parametrize("dtype", [np.int32, np.int64], ids=["32 bits", "64 bits"])
def test_forward_lists_beside_null(dtype, walls, library, handle):  # noqa: F811
    """Their width is read off those that are given; where neither strides nor dilations are, pads have 64 bits."""
    x, w = np.ones((1, 1, 5, 5), np.float32), np.ones((1, 1, 2, 2), np.float32)
    for given in np.ndindex(2, 2, 2):
        if not given[1] and not given[2] and dtype == np.int32:
            continue
        pads, strides, dilations = (2, 1), (1, 3), (1, 2)
        keywords = {name: list_ for name, list_, there in zip(("padding", "stride", "dilation"),
                                                              (pads, strides, dilations), given) if there}
        made, y = P(), iop.conv(x, w, **keywords)
        assert library.infiniopCreateConvDescriptor(
            handle, ctypes.byref(made), *(describe(library, a) for a in (y, x, w)), None,
            *(wall.list(values, dtype) if there else None
              for wall, values, there in zip(walls, (pads, strides, dilations), given)), ctypes.c_size_t(2)) == 0
        assert library.infiniopDestroyConvDescriptor(made) == S.SUCCESS


@pytest.mark.parametrize(("operator", "spelling", "formula"), SPELLINGS,
                         ids=lambda value: getattr(value, "name", value))
@pytest.mark.parametrize("dtype", DTYPES)
def test_spellings(operator, spelling, formula, dtype, library, handle, rng):  # noqa: F811
    """Each is its operator, in the form that its clients compare with."""
    g, x = (random_values(rng, (3, 50), dtype) for _ in range(2))
    case, = (case for case in CASES if case.operator is operator and formula == values_of(
        operator, {p.name: p.default for p in operator.parameters} | case.parameters)[0])
    made, size, out = P(), ctypes.c_size_t(9), np.zeros_like(g)
    tensors = [describe(library, a) for a in (out, x, g)]
    call = lambda start, end, *arguments: getattr(library, f"infiniop{start}{spelling}{end}")(*arguments)  # noqa: E731
    assert call("Create", "Descriptor", handle, ctypes.byref(made), *tensors) == S.SUCCESS
    assert call("Get", "WorkspaceSize", made, ctypes.byref(size)) == S.SUCCESS
    assert call("", "", made, None, size, *map(address, (out, x, g)), None) == S.SUCCESS
    assert same_bits(out, case(g, x))
    assert call("Destroy", "Descriptor", made) == S.SUCCESS
    assert call("Destroy", "Descriptor", made) == S.BAD_PARAM


def test_a_loader_that_registers_every_operator(library):  # noqa: F811
    """The lines of docs/c-api.md, in a class like the clients', with operators that there are and are not."""
    lines, _ = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    registered = []

    def relu(lib):
        registered.append(lib.infiniopCreateReluBackwardDescriptor)

    def rope(lib):
        registered.append(lib.infiniopCreateRoPEDescriptor)
    scope = {}
    exec("class OpRegister:\n    @classmethod\n" + lines, scope)
    scope["OpRegister"].registry = [rope, relu, rope]
    scope["OpRegister"].register_lib(library)
    assert len(registered) == 1


def test_a_loader_that_means_tanh(handle):  # noqa: F811
    """The other lines: the exact form's name stands for the tanh form, on that client's library alone."""
    _, lines = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    scope, lib, made, size = {}, ctypes.CDLL(f"{infini_root()}/lib/libinfiniop.so"), P(), ctypes.c_size_t(0)
    exec(textwrap.dedent(lines), scope)
    scope["mean_tanh"](lib)
    g, x, out = np.ones(4, np.float32), np.float32([-3, -1, 1, 3]), np.zeros(4, np.float32)
    tensors = [describe(lib, a) for a in (out, x, g)]
    assert lib.infiniopCreateGeluBackwardDescriptor(handle, ctypes.byref(made), *tensors) == S.SUCCESS
    assert lib.infiniopGeluBackward(made, None, size, *map(address, (out, x, g)), None) == S.SUCCESS
    assert same_bits(out, iop.gelu_backward(g, x, approximate="tanh"))
    assert lib.infiniopDestroyGeluBackwardDescriptor(made) == S.SUCCESS
