"""Devices: what can be opened, and which backend serves a call. The only dispatch in the library."""
import sys

import numpy as np

from infiniop_cy.backends import cpu
from infiniop_cy.backends.cuda_arrays import is_device_array
from infiniop_cy.core._core import is_weak
from infiniop_cy.status import BadParam, DeviceNotFound, DeviceNotInitialized, DeviceTypeNotSupported

KINDS = ("cpu", "cuda")  # infiniDevice_t in this order


def probe_cuda():
    """(number of CUDA devices, why there is none in words or None)."""
    if sys.platform == "win32":
        return 0, "on Windows no GPU is used"
    try:
        from pycuda.driver import Device, Error, init  # by name: a leftover folder imports as an empty package
    except ImportError as error:
        return 0, f"PyCUDA cannot be imported ({error})"
    try:
        init()
        count = Device.count()
    except (Error, RuntimeError, OSError) as error:
        return 0, f"the CUDA driver does not start ({error})"
    return count, None if count else "the CUDA driver finds no device"


def cuda_problem():
    """Why no CUDA device can be used, in words; None where one can."""
    return probe_cuda()[1]


def available_devices():
    """Names of the devices that Handle opens: "cpu", then "cuda:0" and so on. Where there is no GPU,
    show_config() says why."""
    return ["cpu", *(f"cuda:{i}" for i in range(probe_cuda()[0]))]


def cuda_backend(index):
    """The backend of one CUDA device; None: of that where the arrays of a call lie."""
    from infiniop_cy.backends.cuda import Backend
    return Backend(index)


def parse_device(device, operator):
    """(kind, index) of "cpu", "cuda", "cuda:1", "auto"; raises where it cannot be opened."""
    if not isinstance(device, str):
        raise BadParam(f"{operator}: device is {device!r}, expected 'cpu', 'cuda', 'cuda:N' or 'auto'")
    kind, _, index = device.partition(":")
    if kind == "auto" and not index:
        kind = "cpu" if cuda_problem() else "cuda"
    if kind not in KINDS or (index and not index.isdecimal()):
        raise DeviceTypeNotSupported(
            f"{operator}: unknown device {device!r}, expected 'cpu', 'cuda', 'cuda:N' or 'auto'")
    number, count = int(index or 0), 1
    if kind == "cuda":
        count, problem = probe_cuda()
        if problem:
            raise DeviceTypeNotSupported(f"{operator}: device {device!r} cannot be used: {problem}")
    if number >= count:
        raise DeviceNotFound(f"{operator}: device {device!r} does not exist, expected an index below {count}")
    return kind, number


_AT_HOST = {np.ndarray, type(None)}  # types of most arguments, which need no closer look


def _kind_of(value):
    return "cuda" if not isinstance(value, np.ndarray) and is_device_array(value) else "cpu"


def backend_for(operator, device, names, arrays):
    """The backend that a call runs on: where its arrays lie, unless `device` names one."""
    if device is None and _AT_HOST.issuperset(map(type, arrays)):
        return cpu
    # A Python number lies nowhere.
    present = {name: _kind_of(value) for name, value in zip(names, arrays) if value is not None and not is_weak(value)}
    if len(set(present.values())) > 1:
        where = ", ".join(f"{name} on {kind}" for name, kind in present.items())
        raise BadParam(f"{operator}: arrays on different devices: {where}")
    kind = next(iter(present.values()), "cpu")
    index = None
    if device is not None:
        kind, index = parse_device(device, operator)
        if kind == "cpu" and "cuda" in present.values():
            raise BadParam(f"{operator}: device is {device!r}, but the arrays are on a GPU")
        if device in ("cuda", "auto"):  # any one
            index = None
    elif kind == "cuda":
        parse_device("cuda", operator)
    return cuda_backend(index) if kind == "cuda" else cpu


class Handle:
    """An open device. Handle("cpu"), Handle("cuda", 0), Handle("auto"); also a context manager.

    Raises DeviceTypeNotSupported for a kind that cannot be used (saying why), DeviceNotFound for an index
    out of range.
    """

    def __init__(self, device="cpu", index=None):
        if index is not None:
            if not hasattr(index, "__index__") or isinstance(index, bool):
                raise BadParam(f"Handle: index is {index!r}, expected an integer")
            if index < 0:
                raise DeviceNotFound(f"Handle: index is {index}, expected at least 0")
            device = f"{device}:{index.__index__()}" if device != "auto" or index else device
        self.device, self.device_id = parse_device(device, "Handle")
        self._backend = cuda_backend(self.device_id) if self.device == "cuda" else cpu

    @property
    def backend(self):
        """The module that plans and runs for this device. Raises DeviceNotInitialized after destroy()."""
        if self._backend is None:
            raise DeviceNotInitialized("Handle: used after destroy()")
        return self._backend

    def destroy(self):
        """Close the device. Descriptors made from this handle stay usable. Closing twice is allowed."""
        self._backend = None

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.destroy()

    def __repr__(self):
        return f"Handle({self.device!r}, {self.device_id})"


def empty_workspace(handle, size):
    """An uninitialised workspace of `size` bytes on the handle's device, aligned to 64 bytes; None for size 0."""
    if not hasattr(size, "__index__") or size < 0:
        raise BadParam(f"empty_workspace: size is {size!r}, expected a number of bytes")
    return handle.backend.empty_workspace(size.__index__()) if size else None
