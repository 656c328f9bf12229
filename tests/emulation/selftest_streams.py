"""Tests of the emulation's streams: pytest tests/emulation/selftest_streams.py"""

import numpy as np
import pytest

import emulation

from .selftest import context, drv, floats, gpu, images  # noqa: F401

BLOCKING, INDEPENDENT = 0, 1


@pytest.fixture
def chain(gpu):  # noqa: F811
    """A kernel on one stream whose result a kernel on another stream reads."""

    class Chain:
        a = gpu.array(np.ones(256, np.float32))
        middle, end = gpu.drv.mem_alloc(1024), gpu.drv.mem_alloc(1024)

        def first(self, stream):
            gpu.launch("add", self.a, self.a, self.middle, 256, stream=stream)

        def second(self, stream):
            gpu.launch("add", self.middle, self.a, self.end, 256, stream=stream)

        def result(self, stream):
            out = gpu.drv.pagelocked_empty(256, np.float32)
            gpu.drv.memcpy_dtoh_async(out, self.end, stream)
            stream.synchronize()
            return out

    return Chain()


def test_nothing_runs_before_it_must(gpu):  # noqa: F811
    stream = gpu.drv.Stream()
    da, dc = gpu.array(floats(256)), gpu.drv.mem_alloc(1024)
    before = emulation.counts()
    for _ in range(3):
        gpu.launch("add", da, da, dc, 256, stream=stream)
    assert emulation.pending() == 3
    assert emulation.counts()["launches"] == before["launches"] + 3
    assert emulation.counts()["synchronisations"] == before["synchronisations"]
    stream.synchronize()
    assert emulation.pending() == 0


def test_a_missing_wait_shows(gpu, chain):  # noqa: F811
    one, two = gpu.drv.Stream(INDEPENDENT), gpu.drv.Stream(INDEPENDENT)
    chain.first(one)
    chain.second(two)
    assert np.isnan(chain.result(two)).all()


def test_an_event_orders_streams(gpu, chain):  # noqa: F811
    one, two = gpu.drv.Stream(INDEPENDENT), gpu.drv.Stream(INDEPENDENT)
    chain.first(one)
    two.wait_for_event(gpu.drv.Event().record(one))
    chain.second(two)
    assert (chain.result(two) == 7).all()


def test_an_event_recorded_too_early_orders_nothing(gpu, chain):  # noqa: F811
    one, two = gpu.drv.Stream(INDEPENDENT), gpu.drv.Stream(INDEPENDENT)
    event = gpu.drv.Event().record(one)
    chain.first(one)
    two.wait_for_event(event)
    chain.second(two)
    assert np.isnan(chain.result(two)).all()


@pytest.mark.parametrize("kind", [BLOCKING, INDEPENDENT])
def test_the_legacy_stream_orders_blocking_streams(gpu, chain, kind):  # noqa: F811
    stream = gpu.drv.Stream(kind)
    chain.first(None)
    chain.second(stream)
    assert np.isnan(chain.result(stream)).all() == (kind == INDEPENDENT)


@pytest.mark.parametrize("kind", [BLOCKING, INDEPENDENT])
def test_the_legacy_stream_waits_for_blocking_streams(gpu, chain, kind):  # noqa: F811
    stream = gpu.drv.Stream(kind)
    chain.first(stream)
    chain.second(None)
    out = np.empty(256, np.float32)
    gpu.drv.memcpy_dtoh(out, chain.end)
    assert np.isnan(out).all() == (kind == INDEPENDENT)


def test_a_destroyed_stream_still_finishes(gpu, chain):  # noqa: F811
    stream = gpu.drv.Stream(BLOCKING)
    chain.first(stream)
    del stream
    chain.second(None)
    out = np.empty(256, np.float32)
    gpu.drv.memcpy_dtoh(out, chain.end)
    assert (out == 7).all()


def test_host_memory_is_read_late(gpu):  # noqa: F811
    stream = gpu.drv.Stream()
    for make, seen in ((gpu.drv.pagelocked_zeros, 5), (np.zeros, 5)):
        host, memory = make(4, np.float32), gpu.drv.mem_alloc(16)
        gpu.drv.memcpy_htod_async(memory, host, stream)
        host[:] = 5
        stream.synchronize()
        assert (gpu.get(memory, 4) == seen).all()


def test_pinned_memory_is_written_late_and_pageable_at_once(gpu):  # noqa: F811
    stream, memory = gpu.drv.Stream(), gpu.array(np.ones(4, np.float32))
    for make, seen in ((gpu.drv.pagelocked_zeros, 0), (np.zeros, 1)):
        host = make(4, np.float32)
        gpu.drv.memcpy_dtoh_async(host, memory, stream)
        assert (host == seen).all()
        stream.synchronize()
        assert (host == 1).all()


def test_polling_ends(gpu, chain):  # noqa: F811
    stream = gpu.drv.Stream(INDEPENDENT)
    chain.first(stream)
    event = gpu.drv.Event().record(stream)
    assert [event.query(), event.query()] == [False, True]
    chain.first(stream)
    assert [stream.is_done(), stream.is_done(), stream.is_done()] == [False, True, True]


def test_freeing_finishes_the_work(gpu, chain):  # noqa: F811
    stream = gpu.drv.Stream(INDEPENDENT)
    chain.first(stream)
    gpu.drv.mem_alloc(16).free()
    assert emulation.pending() == 0


def test_stream_ordered_memory(gpu):  # noqa: F811
    from ctypes import byref, c_size_t, c_uint64, c_void_p

    library = emulation.library()
    one, two = gpu.drv.Stream(INDEPENDENT), gpu.drv.Stream(INDEPENDENT)
    source, address = gpu.array(floats(256)), c_uint64()
    assert library.cuMemAllocAsync(byref(address), c_size_t(1024), c_void_p(one.handle)) == 0
    gpu.launch("add", source, source, address.value, 256, stream=two)
    with pytest.raises(gpu.drv.LogicError):
        two.synchronize()
    assert "before its allocation ran" in emulation.last_error_text()
    gpu.launch("add", source, source, address.value, 256, stream=one)
    one.synchronize()
    assert library.cuMemFreeAsync(address, c_void_p(one.handle)) == 0
    gpu.launch("add", source, source, address.value, 256, stream=one)
    with pytest.raises(gpu.drv.LogicError):
        one.synchronize()


def test_a_fault_drops_what_is_queued_and_is_reported_once(gpu, chain):  # noqa: F811
    stream = gpu.drv.Stream(INDEPENDENT)
    gpu.launch("trap", chain.a, 0, chain.middle, 0, stream=stream)
    chain.first(stream)
    gpu.drv.mem_alloc(16).free()  # finishes the work, says nothing
    with pytest.raises(gpu.drv.LaunchError):
        stream.synchronize()
    stream.synchronize()
    assert np.isnan(gpu.get(chain.middle, 256)[5:]).all()


def test_times_are_in_order(gpu, chain):  # noqa: F811
    start = gpu.drv.Event().record()
    chain.first(None)
    end = gpu.drv.Event().record().synchronize()
    assert end.time_since(start) >= 0


def test_memory_has_a_limit(gpu, monkeypatch):  # noqa: F811
    monkeypatch.setenv("EMULATION_MEMORY", str(1 << 20))
    assert gpu.drv.mem_get_info()[1] == 1 << 20
    held = gpu.drv.mem_alloc(1 << 19)
    with pytest.raises(gpu.drv.MemoryError):
        gpu.drv.mem_alloc((1 << 19) + 1)
    held.free()
    gpu.drv.mem_alloc((1 << 19) + 1)


def test_a_pool_gives_back_what_its_threshold_does_not_keep(gpu):  # noqa: F811
    from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

    library, stream = emulation.library(), gpu.drv.Stream(INDEPENDENT)
    pool, address, threshold = c_void_p(), c_uint64(), c_uint64(2**64 - 1)
    properties = (c_int * 22)(1, 0, 1, 0)  # pinned, not shared, on device 0
    assert library.cuMemPoolCreate(byref(pool), byref(properties)) == 0
    for returned in (4096, 0):
        before = emulation.counts()["bytes_returned"]
        code = library.cuMemAllocFromPoolAsync(byref(address), c_size_t(4096), pool, c_void_p(stream.handle))
        assert code == library.cuMemFreeAsync(address, c_void_p(stream.handle)) == 0
        stream.synchronize()
        assert emulation.counts()["bytes_returned"] - before == returned
        assert library.cuMemPoolSetAttribute(pool, 4, byref(threshold)) == 0
