# Kernels on a GPU come in modules, one per formula (or for convolutions) and dtype, loaded when first needed.
from libcpp.string cimport string
from libcpp.vector cimport vector

cdef extern from "<filesystem>" namespace "std::filesystem" nogil:
    cdef cppclass path:
        string string()

cdef extern from "cuda/build.h" namespace "cuda_build" nogil:
    enum:
        CUDA_LOWEST_CAPABILITY "cuda_build::LOWEST_CAPABILITY"
    ctypedef struct Target:
        int capability
        bint ptx
    ctypedef struct Built:
        string image
        string words
    string image_name(const string &name, int dtype, const Target &target) except +
    string read_cached(const string &name) except +
    string find_nvcc() except +
    path cache_folder() except +
    Built make_image "cuda_build::make"(const string &name, int dtype, const Target &target, bint fresh) except +
    Built build_image "cuda_build::build"(const string &name, int dtype, int capability, bint fresh) except +
    path source_file(const string &name) except +
    vector[string] options(const string &name, int dtype) except +
    vector[path] source_folders() except +
    int cuda_load "cuda_build::load"(int device, int number, const char *name, int dtype, const char *const *names,
                                     int count)

LOWEST_CAPABILITY = CUDA_LOWEST_CAPABILITY
cdef tuple CUDA_DTYPE_NAMES = ("float16", "bfloat16", "float32", "float64")  # by cuda_dtype_number


cdef const char *cuda_module_kernels(int number, const char *const **names, int *count) noexcept nogil:
    """Return a module's name, a formula's or conv, and find the names of its kernels."""
    cdef int formula = number // CUDA_DTYPES
    if formula < kernels.formula_count:
        names[0], count[0] = cuda_elementwise_names, CUDA_ELEMENTWISE_KERNELS
        return kernels.formula[formula].name
    names[0], count[0] = cuda_conv_kernel_names, CUDA_CONV_KERNELS
    return "conv"


cdef int cuda_require(int device, int number) noexcept nogil:
    """Load a module if it is not yet, without Python. Returns a driver's code, a negative one of ours or 0."""
    cdef const char *const *names
    cdef const char *name
    cdef int count
    if cuda_find_module(device, number) != NULL:
        return 0
    name = cuda_module_kernels(number, &names, &count)
    return cuda_load(device, number, name, number % CUDA_DTYPES, names, count)
