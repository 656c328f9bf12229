"""Which devices there are, which one a call runs on, and why there is none."""
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from device_mirror import Mirrored, to_host
from test_build import TESTS

import infiniop_cy as iop
from infiniop_cy.backends.cuda_context import current
from infiniop_cy.testing import same_bits
from infiniop_cy.testing.conv import CONV_CASES, make_case

relu = iop.relu_backward._function
G, X = np.float32([1, 2, 3]), np.float32([1, -1, 1])


def test_handles():
    names = iop.available_devices()
    assert names[:2] == ["cpu", "cuda:0"]
    for name in names:
        with iop.Handle(name) as handle:
            assert f"{handle.device}:{handle.device_id}" in (name, "cpu:0")
    assert (iop.Handle("cuda").device, iop.Handle("cuda").device_id) == ("cuda", 0)
    assert iop.Handle("auto").device == "cuda"
    assert iop.Handle("cuda", len(names) - 2).device_id == len(names) - 2
    for bad in (lambda: iop.Handle("cuda", 99), lambda: iop.Handle("cuda:99"), lambda: relu(G, X, device="cuda:99")):
        with pytest.raises(iop.DeviceNotFound,
                           match=f"'cuda:99' does not exist, expected an index below {len(names) - 1}"):
            bad()
    assert "usable" in __import__("infiniop_cy.config").config.config_text()


def test_auto_takes_the_gpu(emulator):
    before = emulator.counts()["launches"]
    assert relu(G, X, device="auto").tolist() == [1, 0, 3]
    assert emulator.counts()["launches"] == before + 1
    relu(G, X)  # where the data is
    relu(G, X, device="cpu")
    assert emulator.counts()["launches"] == before + 1


def second_device():
    if len(iop.available_devices()) < 3:
        pytest.skip("there is one GPU alone")
    return 1


def test_a_call_runs_where_its_arrays_are():
    index = second_device()
    here = Mirrored((G, X), index)
    result = relu(here.place(G), here.place(X))
    assert same_bits(to_host(result, index), np.float32([1, 0, 3]))
    assert same_bits(to_host(relu(here.place(G), here.place(X), device="cuda"), index), np.float32([1, 0, 3]))
    assert relu(G, X, device=f"cuda:{index}").tolist() == [1, 0, 3]
    with pytest.raises(iop.BadParam,
                       match=r"on different devices: grad_output on cuda:1, input on cuda:1, asked for cuda:0"):
        relu(here.place(G), here.place(X), device="cuda:0")
    other = Mirrored((X,), 0)
    with pytest.raises(iop.BadParam, match="grad_output on cuda:1, input on cuda:0"):
        relu(here.place(G), other.place(X))
    t = iop.TensorDescriptor((3,), "float32")
    out = here.place(G)
    with iop.Handle("cuda", index) as handle, iop.ReluBackwardDescriptor(handle, t, t, t) as op:
        op.calculate(None, out, here.place(X), here.place(G))
        with pytest.raises(iop.BadParam, match="input is on cuda:0, expected cuda:1"):
            op.calculate(None, out, other.place(X), here.place(G))
    here.fetch()
    here.free()
    other.free()


REASONS = {
    "no driver": ({"EMULATION_INIT_ERROR": "100"}, "", "the CUDA driver does not start"),
    "no device": ({"EMULATION_DEVICES": "0"}, "", "no CUDA-capable device is detected"),
    "no PyCUDA": ({}, "sys.modules['pycuda'] = sys.modules['pycuda.driver'] = None", "PyCUDA cannot be imported"),
    "a leftover folder": ({}, "sys.modules['pycuda.driver'] = type(sys)('pycuda.driver')", "PyCUDA cannot be imported"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_why_there_is_none(reason, emulator):
    """Handle, device= and show_config say it; available_devices and "auto" fall back to the CPU."""
    environment, statement, words = REASONS[reason]
    script = f"""
        import os, sys
        sys.path.insert(0, os.environ["TESTS"])
        import emulation
        emulation.install(os.environ["EMULATION_FOLDER"])
        {statement}
        import numpy as np, infiniop_cy as iop
        from infiniop_cy.config import config_text
        x = np.float32([1, -1])
        assert iop.available_devices() == ["cpu"]
        assert iop.Handle("auto").device == "cpu"
        assert iop.relu_backward(x, x, device="auto").tolist() == [1, 0]
        for call in (lambda: iop.Handle("cuda"), lambda: iop.relu_backward(x, x, device="cuda")):
            try:
                call()
            except iop.DeviceTypeNotSupported as error:
                assert {words!r} in str(error), error
            else:
                raise AssertionError("no error")
        assert {words!r} in config_text(), config_text()
        print("done")
        """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False,
                         env={**os.environ, "TESTS": str(TESTS), **environment})
    assert ran.stdout == "done\n", ran.stderr


def test_many_devices_share_no_kernels(emulator):
    """Each has its own modules, memory and streams."""
    index = second_device()
    for device in (0, index, 0):
        got = iop.gelu_backward._function(G, X, device=f"cuda:{device}")
        assert same_bits(got, iop.gelu_backward._function(G, X, device="cuda:0"))


def test_memory_is_given_back(emulator, rng):
    """Nothing of a call stays allocated but its result, whether it succeeds or fails."""
    case = CONV_CASES["2d-groups"]
    data = make_case(case, "float32", rng)
    conv = iop.conv_backward._function
    conv(*data, **case.keywords, device="cuda")
    with current(0) as context:
        context.context.synchronize()
    before = emulator.counts()["allocations_alive"]
    for _ in range(3):
        conv(*data, **case.keywords, device="cuda")
        relu(G, X, device="cuda")
        with pytest.raises(iop.BadTensorShape):
            relu(G, X[:2], device="cuda")
    relu(G, X, device="cuda")
    with current(0) as context:
        context.context.synchronize()
    assert emulator.counts()["allocations_alive"] == before
