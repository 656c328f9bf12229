"""NVIDIA GPUs: PyCUDA finds the device and builds the kernels, the core checks, plans and launches."""
from infiniop_cy.backends import cuda_arrays
from infiniop_cy.backends.cuda_context import allocator, current
from infiniop_cy.backends.cuda_spaces import DeviceSpace, HostSpace, OrderedCall
from infiniop_cy.core import _core
from infiniop_cy.status import BadParam


class DevicePlan:
    """A plan of the core, given device arrays or addresses."""

    def __init__(self, op, index, plan, names):
        self._op, self.index, self._plan, self._names = op, index, plan, names

    @property
    def workspace_size(self):
        return self._plan.workspace_size

    @property
    def facts(self):
        return self._plan.facts

    def calculate(self, *values, stream=None):
        """stream: None for that of the arrays, as for functions; the default stream where there are but addresses."""
        if stream is not None:
            stream = cuda_arrays.stream_address(stream, self._op)
        given = dict(zip(self._names, values))
        arrays = {name: value for name, value in given.items() if self._is_array(name, value)}
        if not arrays:
            self._plan.calculate(*values, stream=stream or cuda_arrays.LEGACY_STREAM)
            return
        found, stream, others = cuda_arrays.describe_all(self._op, arrays, stream)
        headers = {name: self._header(name, d) for name, d in found.items()}
        with OrderedCall(self.index, self._op, stream, others, found.values()):
            self._plan.calculate(*(headers.get(name, value) for name, value in given.items()), stream=stream)

    def _is_array(self, name, value):
        """False for None and addresses."""
        if value is None or (hasattr(value, "__index__") and not hasattr(value, "shape")):
            return False
        what = f"{self._op}: {name}"
        if not cuda_arrays.is_device_array(value):
            if hasattr(value, "__array_interface__"):
                raise BadParam(f"{what} is in the host's memory, expected an array on cuda:{self.index} or an address")
            raise TypeError(f"{what} is a {type(value).__name__}, expected an array or an address")
        return True

    def _header(self, name, d):
        where = _core.device_of(d.address) if d.address else -1
        if where not in (-1, self.index):
            raise BadParam(f"{self._op}: {name} is on cuda:{where}, expected cuda:{self.index}")
        return _core.device_header(d.address, d.shape, d.strides, d.dtype, d.writable, d.owner)


class Backend:
    """One device; index None: the device where the arrays of a call lie."""

    def __init__(self, index):
        self.index = index

    def _space(self, op, **arrays):
        if any(cuda_arrays.is_device_array(value) for value in arrays.values()):
            return DeviceSpace(self.index, op, arrays)
        return HostSpace(self.index or 0, op, arrays)

    def elementwise(self, op, formula, values, promotes, inputs, out, accumulate, num_threads, refusal):
        with self._space(op, **dict([*zip(("input", "grad_output"), inputs)][::-1]), out=out) as space:
            return _core.elementwise(op, formula, values, promotes, inputs, out, accumulate, num_threads, refusal,
                                     space)

    def conv_backward(self, grad_output, input, weight, stride, padding, dilation, groups, output_mask, out, accumulate,
                      num_threads):
        outs = {f"out[{i}]": value for i, value in enumerate(out)}
        with self._space("conv_backward", grad_output=grad_output, input=input, weight=weight, **outs) as space:
            return _core.conv_backward(grad_output, input, weight, stride, padding, dilation, groups, output_mask, out,
                                       accumulate, num_threads, space)

    def conv(self, input, weight, bias, stride, padding, dilation, groups, out, num_threads):
        with self._space("conv", input=input, weight=weight, bias=bias, out=out) as space:
            return _core.conv(input, weight, bias, stride, padding, dilation, groups, out, num_threads, space)

    def ElementwisePlan(self, op, *arguments):
        plan = _core.ElementwisePlanObject(op, *arguments, device=self.index)
        return DevicePlan(op, self.index, plan, ("workspace", *plan.names))

    def ConvPlan(self, *arguments):
        plan = _core.ConvPlanObject(*arguments, device=self.index)
        return DevicePlan("conv_backward", self.index, plan,
                          ("workspace", "grad_input", "grad_weight", "grad_bias", "grad_output", "input", "weight"))

    def ForwardPlan(self, *arguments):
        plan = _core.ForwardPlanObject(*arguments, device=self.index)
        return DevicePlan("conv", self.index, plan, ("workspace", "output", "input", "weight", "bias"))

    def empty_workspace(self, size):
        """A GPUArray of so many bytes."""
        from pycuda import gpuarray
        with current(self.index):
            return gpuarray.GPUArray(size, "uint8", allocator=allocator(self.index))

    @staticmethod
    def shape_of(value, op, name):
        import numpy as np
        return tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
