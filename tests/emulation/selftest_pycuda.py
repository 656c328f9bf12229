"""Real PyCUDA on the emulated driver: python selftest_pycuda.py FOLDER [HEADERS]"""

import struct
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # not this folder, which has a pycuda of its own

import emulation
from emulation import selftest_sources as sources

emulation.install_driver_only(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)

import numpy as np
import pycuda.compiler
import pycuda.driver as drv
import pycuda.gpuarray as gpuarray


def main():
    assert "emulation" not in pycuda.__file__
    drv.init()
    assert drv.Device.count() == 2
    context = drv.Device(0).retain_primary_context()
    context.push()
    try:
        use(context)
    finally:
        drv.Context.pop()
        context.detach()


def compiler_words(source):
    try:
        return pycuda.compiler.compile(source, arch="sm_90", cache_dir=False) and ""
    except drv.CompileError as error:
        return error.stderr


def use(context):
    image = pycuda.compiler.compile(sources.BASIC, no_extern_c=True, arch="sm_90", cache_dir=False)
    module = drv.module_from_buffer(image)
    add = module.get_function("add").prepare(["32s"])
    a, stream = np.random.rand(1000).astype(np.float32), drv.Stream()
    da, dc = gpuarray.to_gpu(a), gpuarray.empty(1000, np.float32)
    add.prepared_async_call((4, 1), (256, 1, 1), stream, struct.pack("QQQq", da.ptr, da.ptr, dc.ptr, 1000))
    assert emulation.pending() == 1
    event = drv.Event().record(stream)
    assert [event.query(), event.query()] == [False, True]
    np.testing.assert_array_equal(dc.get(), a * 2 + a)
    assert (gpuarray.zeros((3, 4), np.float32).get() == 0).all()
    pinned = drv.pagelocked_empty(1000, np.float32)
    drv.memcpy_dtoh_async(pinned, dc.gpudata, stream)
    stream.synchronize()
    np.testing.assert_array_equal(pinned, a * 3)
    add.prepared_call((4, 1), (256, 1, 1), struct.pack("QQQq", da.ptr, da.ptr, dc.ptr, 1001))
    try:
        context.synchronize()
    except drv.LogicError:
        assert "add" in emulation.last_error_text()
    else:
        raise AssertionError("an overrun went unnoticed")
    assert "nonsense" in compiler_words("nonsense")
    del da, dc, pinned, event, stream


main()
