# distutils: language = c++
# cython: language_level=3, wraparound=False, cdivision=True
# cython: embedsignature=True, embedsignature.format=clinic
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
include "base/team.pxi"             # what they share, and how late they are

include "elementwise/problem.pxi"   # what all elementwise operators are asked, and the rules of it
include "elementwise/tiles.pxi"     # operands that lie across the output
include "elementwise/plan.pxi"      # axes sorted and merged, kernels chosen
include "elementwise/run.pxi"       # chunks and tiles, by threads

include "fixed_point/sums.pxi"      # sums of gradients over shards, exact in any order

include "conv/problem.pxi"          # rules, one sample's geometry, where the tensors lie
include "conv/boxes.pxi"            # boxes of positions, grids cut into tiles
include "conv/geometry.pxi"         # pixels, taps, phases, halos
include "conv/tap_classes.pxi"      # the input by classes of taps, for grad_weight
include "conv/forward.pxi"          # the forward convolution, as a grad_input of exchanged roles
include "conv/algorithm.pxi"        # what an algorithm is: functions, order of sums, blocking, scratch
include "conv/values.pxi"           # single values and short rows of them
include "conv/nonfinite.pxi"        # inf and NaN that may not meet padding
include "conv/pack.pxi"             # strided tensors as blocks
include "conv/pack_folded.pxi"      # ... whose taps count as channels
include "conv/prefetch.pxi"         # the next block, asked for meanwhile
include "conv/nontemporal.pxi"      # pixels that leave the caches, meanwhile
include "conv/bias.pxi"             # grad_bias, on the way or alone
include "conv/register_tiles.pxi"   # micro-panels and the loop over register tiles
include "conv/weight_panels.pxi"    # weights, packed once for grad_input
include "conv/output_bias.pxi"      # the bias of an output
include "conv/store.pxi"            # sums of grad_input to memory
include "conv/weight_store.pxi"     # sums of grad_weight to memory
include "conv/input_tiles.pxi"      # what grad_input's algorithms with pixels as rows share
include "conv/input_order.pxi"      # ... in an order of pixels that leaves padding out
include "conv/weight_parts.pxi"     # sums of grad_weight's parts of the pixels, joined in a round of their own
include "conv/weight_cut.pxi"       # (ci, tap) by co of grad_weight as tasks
include "conv/weight_pairs.pxi"     # grad_weight's operands as pairs of bfloat16 pixels
include "conv/weight_tiles.pxi"     # what grad_weight's algorithms with (ci, tap) as rows share
include "conv/weight_taps.pxi"      # ... tap by tap, without the padding that these meet
include "conv/weight_boxes.pxi"     # ... box of taps by box of taps
include "conv/weight_chunks.pxi"    # ... where these are read pixel by pixel, as they lie
include "conv/in_place.pxi"         # operands of both that are read where they lie
include "conv/input_by_pixels.pxi"  # grad_input from registers, where channels lie side by side
include "conv/input_by_planes.pxi"  # ... and where pixels do, under one tap
include "conv/parts.pxi"            # float32 and float16 as sums of bfloat16
include "conv/survey.pxi"           # samples that float32 as such a sum does not hold
include "conv/tap_columns.pxi"      # what the algorithms with (ci, tap) as columns share, as the weights lie
include "conv/trim.pxi"             # taps that meet only padding
include "conv/tap_costs.pxi"        # when they pay
include "conv/amx.pxi"              # what all algorithms by AMX share
include "conv/amx_gaps.pxi"         # ... zeros that rows of a block have in common
include "conv/amx_pixels.pxi"       # ... those of grad_input
include "conv/amx_groups.pxi"       # ... small groups joined, for those of grad_input
include "conv/amx_lines.pxi"        # ... those of grad_weight: operands packed from memory at once
include "conv/amx_planes.pxi"       # ... and all others
include "conv/amx_cut.pxi"          # ... and how they are cut into tasks
include "conv/algorithms.pxi"       # the list, with a file for each
include "conv/plan.pxi"             # chooses and plans
include "conv/run.pxi"              # ... and runs
include "conv/both_gradients.pxi"   # ... both gradients tile by tile
include "conv/explain.pxi"          # what Python may ask

include "cuda/elementwise.pxi"      # the same plans on a GPU
include "cuda/conv.pxi"
include "cuda/modules.pxi"          # their kernels, built and loaded

include "capi/infiniop.pxi"         # the infiniop C functions
include "capi/aclnn.pxi"            # the aclnn C functions

include "jax/handlers.pxi"          # the operators as XLA calls them

include "python/errors.pxi"         # failures as exceptions
include "python/interrupt.pxi"        # signals during long calls
include "python/arrays.pxi"         # NumPy arrays to tensors and back
include "python/dlpack.pxi"         # device arrays of other libraries
include "cuda/memory.pxi"           # device memory as Python sees it, and what a call borrows and holds
include "cuda/calls.pxi"            # kernels when first needed, and their launches
include "python/calls.pxi"          # iop.relu_backward(g, x) on plain contiguous arrays
include "python/functions.pxi"      # the same on everything else, and iop.conv_backward
include "python/descriptors.pxi"    # plans that Python holds
include "python/forward.pxi"        # iop.conv and its plans
include "python/fixed_point.pxi"    # the steps of a sum over shards
