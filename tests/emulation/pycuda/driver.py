"""pycuda.driver: one name for all parts."""

from pycuda._context import Context, Device, device_attribute, get_driver_version, get_version, init
from pycuda._library import Error, LaunchError, LogicError, MemoryError, RuntimeError
from pycuda._memory import (
    DeviceAllocation,
    HostAllocation,
    PagelockedHostAllocation,
    PointerHolderBase,
    mem_alloc,
    mem_alloc_like,
    mem_get_address_range,
    mem_get_info,
    memcpy_dtod,
    memcpy_dtod_async,
    memcpy_dtoh,
    memcpy_dtoh_async,
    memcpy_htod,
    memcpy_htod_async,
    memcpy_peer,
    memcpy_peer_async,
    memset_d8,
    memset_d8_async,
    memset_d16,
    memset_d16_async,
    memset_d32,
    memset_d32_async,
    pagelocked_empty,
    pagelocked_empty_like,
    pagelocked_zeros,
)
from pycuda._modules import Function, Module, function_attribute, module_from_buffer, module_from_file
from pycuda._streams import Event, Stream, event_flags

CUDA_DEBUGGING = False


class CompileError(Error):
    def __init__(self, msg, command_line, stdout=None, stderr=None):
        self.msg = msg
        self.command_line = command_line
        self.stdout = stdout
        self.stderr = stderr

    def __str__(self):
        result = self.msg
        if self.command_line:
            result += f"\n[command: {' '.join(self.command_line)}]"
        for name, text in (("stdout", self.stdout), ("stderr", self.stderr)):
            if text:
                result += f"\n[{name}:\n{text}]"
        return result


__all__ = [
    "CUDA_DEBUGGING", "CompileError", "Context", "Device", "DeviceAllocation", "Error", "Event", "Function",
    "HostAllocation", "LaunchError", "LogicError", "MemoryError", "Module", "PagelockedHostAllocation",
    "PointerHolderBase", "RuntimeError", "Stream", "device_attribute", "event_flags", "function_attribute",
    "get_driver_version", "get_version", "init", "mem_alloc", "mem_alloc_like", "mem_get_address_range",
    "mem_get_info", "memcpy_dtod", "memcpy_dtod_async", "memcpy_dtoh", "memcpy_dtoh_async", "memcpy_htod",
    "memcpy_htod_async", "memcpy_peer", "memcpy_peer_async", "memset_d8", "memset_d8_async", "memset_d16",
    "memset_d16_async", "memset_d32", "memset_d32_async", "module_from_buffer", "module_from_file",
    "pagelocked_empty", "pagelocked_empty_like", "pagelocked_zeros",
]  # fmt: skip
