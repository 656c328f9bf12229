# distutils: language = c++
# cython: language_level=3, wraparound=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""The core: nogil Cython over C structs, then the Python objects that call it.

One module out of one file per idea, so that every call is direct and inlinable and the whole is one
shared object. Read top to bottom: each file uses only those before it.
"""
import numpy  # no-cython-lint: used in the files below

from infiniop_cy import dtypes, status  # no-cython-lint

include "base/declarations.pxi"     # the kernel tables and the platform, as Cython sees them
include "base/status.pxi"           # rules, and how a failure is carried
include "base/tensor.pxi"           # a strided view; checked sizes; extents
include "base/overlap.pxi"          # do two views share memory
include "base/threads.pxi"          # how many threads, and why

include "elementwise/problem.pxi"   # what all elementwise operators are asked, and the rules of it
include "elementwise/tiles.pxi"     # operands that lie across the output
include "elementwise/plan.pxi"      # axes sorted and merged, kernels chosen
include "elementwise/run.pxi"       # chunks and tiles, by threads

include "conv_plan.pxi"             # validate and plan a convolution backward
include "conv_tiles.pxi"            # how its work is cut
include "conv_pack.pxi"             # blocks of pixels, packed for the micro-kernel
include "conv_multiply.pxi"         # register tiles over those blocks
include "conv_weights.pxi"          # phases of the stride, weights packed by them
include "conv_grad_input.pxi"
include "conv_grad_bias.pxi"
include "conv_grad_weight.pxi"
include "conv_amx.pxi"              # both, for bfloat16 on CPUs with AMX
include "conv_planes.pxi"           # both, one channel at a time
include "conv_run.pxi"              # all three gradients

include "cuda/elementwise.pxi"      # the same plans on a GPU
include "cuda/conv.pxi"
include "cuda/modules.pxi"          # their kernels, built and loaded

include "capi/infiniop.pxi"         # the infiniop C functions
include "capi/aclnn.pxi"            # the aclnn C functions

include "python/errors.pxi"         # failures as exceptions
include "python/arrays.pxi"         # NumPy arrays to tensors and back
include "python/dlpack.pxi"         # device arrays of other libraries
include "cuda/calls.pxi"            # device memory as Python sees it, and kernels when first needed
include "python/calls.pxi"          # iop.relu_backward(g, x) on plain contiguous arrays
include "python/functions.pxi"      # the same on everything else, and iop.conv_backward
include "python/descriptors.pxi"    # plans that Python holds
