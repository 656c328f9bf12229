# Tiles serve operands that lie across the output: NHWC against NCHW, a matrix against its transpose.
#
# Gathered in the output's order, such an operand touches a cache line for every element. A tile spans two axes, the
# output's innermost and the operand's; its part of the operand is transposed into a buffer in L1 by whole lines, and
# then goes row by row through the same kernel as anything else.
cdef enum:
    TILE_BYTES = 16384   # of one operand: three are L1
    TILE_DOUBLES = TILE_BYTES // 8
    TILE_COLUMNS = 256   # elements along the output's innermost axis: long enough a row for the kernel
    TILE_FROM = 8        # elements along either axis; thinner operands are gathered


cdef void plan_tiles(ElementwisePlan *plan) noexcept nogil:
    """Choose the axis to tile along; -1 where no operand lies across the output."""
    cdef int last = plan.ndim - 1, k, d
    plan.tile_axis = -1
    for k in range(INPUT, plan.operands):
        plan.across[k] = False
        if plan.dtypes[k] != plan.dtype or plan.strides[k][last] in (0, plan.itemsize[k]):
            continue
        for d in range(last):
            if (plan.strides[k][d] == plan.itemsize[k] and min(plan.shape[d], plan.shape[last]) >= TILE_FROM
                    and plan.tile_axis in (-1, d)):
                plan.tile_axis = d
                plan.across[k] = True
    if plan.tile_axis < 0:
        return
    plan.transpose = kernels.transpose[plan.dtype]
    plan.tile_columns = min(<int64_t>TILE_COLUMNS, plan.shape[last])
    plan.tile_rows = min(TILE_BYTES // (itemsize_of(plan.dtype) * plan.tile_columns), plan.shape[plan.tile_axis])


cdef int64_t tiles_along(const ElementwisePlan *plan, int axis) noexcept nogil:
    """Count the tiles along an axis; along one that is not tiled each element is one."""
    if axis == plan.tile_axis:
        return (plan.shape[axis] + plan.tile_rows - 1) // plan.tile_rows
    if axis == plan.ndim - 1:
        return (plan.shape[axis] + plan.tile_columns - 1) // plan.tile_columns
    return plan.shape[axis]


cdef int64_t tile_count(const ElementwisePlan *plan) noexcept nogil:
    cdef int64_t count = 1
    cdef int d
    for d in range(plan.ndim):
        count *= tiles_along(plan, d)
    return count


cdef void run_tile(const ElementwisePlan *plan, ElementwiseKernel kernel, char **data, int64_t tile) noexcept nogil:
    """Compute one tile of at most tile_rows by tile_columns elements."""
    cdef double buffer[OPERANDS][TILE_DOUBLES]  # doubles: aligned
    cdef char *block[OPERANDS]
    cdef int64_t pitch[OPERANDS]  # bytes from row to row
    cdef int64_t item = itemsize_of(plan.dtype), rows = 0, columns = 0, start, r
    cdef int last = plan.ndim - 1, main = main_input(plan.operands), k, d
    cdef bint one_run
    cdef int64_t stride
    for k in range(plan.operands):
        block[k] = data[k] + plan.offset[k]
    for d in range(last, -1, -1):
        start = tile % tiles_along(plan, d)
        tile //= tiles_along(plan, d)
        if d == last:
            start *= plan.tile_columns
            columns = min(plan.tile_columns, plan.shape[d] - start)
        elif d == plan.tile_axis:
            start *= plan.tile_rows
            rows = min(plan.tile_rows, plan.shape[d] - start)
        for k in range(plan.operands):
            block[k] += start * plan.strides[k][d]
    cdef char *out = block[OUT]
    for k in range(plan.operands):
        stride = plan.strides[k][plan.tile_axis]
        pitch[k] = stride
        if plan.run[k]:  # contiguous along the last axis
            continue
        pitch[k] = columns * item
        if k != OUT and plan.across[k]:
            plan.transpose(block[k], plan.strides[k][last], <char *>buffer[k], pitch[k], rows, columns)
        elif k != OUT or plan.accumulate:
            for r in range(rows):
                plan.fetch[k](block[k] + r * stride, plan.strides[k][last], <char *>buffer[k] + r * pitch[k], item,
                              columns)
        block[k] = <char *>buffer[k]
    one_run = pitch[OUT] == columns * item and pitch[INPUT] == pitch[OUT] and pitch[main] == pitch[OUT]
    for r in range(1 if one_run else rows):
        kernel(block[main] + r * pitch[main], block[INPUT] + r * pitch[INPUT],
               block[OUT] + r * pitch[OUT], columns * rows if one_run else columns, &plan.parameters)
    if block[OUT] != out:
        for r in range(rows):
            plan.deliver(block[OUT] + r * pitch[OUT], item, out + r * plan.strides[OUT][plan.tile_axis],
                         plan.strides[OUT][last], columns)
