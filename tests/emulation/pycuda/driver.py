"""pycuda.driver: one name for all parts."""

from pycuda._context import Context, Device, device_attribute, init
from pycuda._library import Error, LaunchError, LogicError, MemoryError, RuntimeError
from pycuda._memory import (
    DeviceAllocation,
    PagelockedHostAllocation,
    PointerHolderBase,
    mem_alloc,
    mem_get_info,
    memcpy_dtod,
    memcpy_dtoh,
    memcpy_dtoh_async,
    memcpy_htod,
    memcpy_htod_async,
    memset_d8,
    pagelocked_empty,
    pagelocked_zeros,
)
from pycuda._modules import Function, Module, function_attribute, module_from_buffer
from pycuda._streams import Event, Stream, event_flags

__all__ = [
    "Context", "Device", "DeviceAllocation", "Error", "Event", "Function", "LaunchError", "LogicError", "MemoryError",
    "Module", "PagelockedHostAllocation", "PointerHolderBase", "RuntimeError", "Stream", "device_attribute",
    "event_flags", "function_attribute", "init", "mem_alloc", "mem_get_info", "memcpy_dtod", "memcpy_dtoh",
    "memcpy_dtoh_async", "memcpy_htod", "memcpy_htod_async", "memset_d8", "module_from_buffer", "pagelocked_empty",
    "pagelocked_zeros",
]  # fmt: skip
