# Tensors that another library hands over by DLPack (dmlc.github.io/dlpack): a capsule, owned by whoever renamed it.
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_SetName

cdef extern from *:
    """
    struct DlpackTensor {
        void *data;
        struct { int32_t type, id; } device;
        int32_t ndim;
        struct { uint8_t code, bits; uint16_t lanes; } dtype;
        int64_t *shape, *strides;  // strides in elements; null for C order
        uint64_t byte_offset;
    };
    struct DlpackManaged {
        DlpackTensor tensor;
        void *context;
        void (*deleter)(DlpackManaged *);
    };
    """
    ctypedef struct DlpackDtype:
        uint8_t code
        uint8_t bits
        int lanes
    ctypedef struct DlpackTensor:
        void *data
        int ndim
        DlpackDtype dtype
        int64_t *shape
        int64_t *strides
        uint64_t byte_offset
    ctypedef struct DlpackManaged:
        DlpackTensor tensor
        void (*deleter)(DlpackManaged *) noexcept

cdef dict DLPACK_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex"}


cdef class DlpackOwner:
    """Keeps the tensor of a capsule, and lets its library free it at the end."""
    cdef DlpackManaged *managed

    def __dealloc__(self):
        if self.managed != NULL and self.managed.deleter != NULL:
            self.managed.deleter(self.managed)


def read_dlpack(capsule):
    """Take a capsule named dltensor: its address, shape, strides in elements or None, dtype's name and owner."""
    cdef DlpackOwner owner = DlpackOwner()
    cdef DlpackTensor *tensor
    cdef int d
    if not PyCapsule_IsValid(capsule, "dltensor"):
        raise TypeError(f"{capsule!r} is not a DLPack tensor that is still to be taken")
    owner.managed = <DlpackManaged *>PyCapsule_GetPointer(capsule, "dltensor")
    PyCapsule_SetName(capsule, "used_dltensor")
    tensor = &owner.managed.tensor
    shape = tuple([tensor.shape[d] for d in range(tensor.ndim)])
    strides = None if tensor.strides == NULL else tuple([tensor.strides[d] for d in range(tensor.ndim)])
    kind = DLPACK_KINDS.get(tensor.dtype.code, f"kind {tensor.dtype.code}, ")
    name = "bool" if tensor.dtype.code == 6 else f"{kind}{tensor.dtype.bits}"
    if tensor.dtype.lanes != 1:  # vectors, which are no dtype here
        name = f"{name}x{tensor.dtype.lanes}"
    return <uintptr_t>tensor.data + tensor.byte_offset, shape, strides, name, owner
