# What an elementwise operator is asked to do, the plan that answers it, and the rules that both must keep.
#
# A gradient has three operands: out, input and grad_output; a forward function has the first two.
cdef enum:
    OUT = 0
    INPUT = 1
    GRAD_OUTPUT = 2
    OPERANDS = 3  # at most


ctypedef struct ElementwiseSpec:
    int formula
    int operands     # of the formula
    bint promotes    # inputs of two dtypes promote, the output may have any dtype (leaky_relu)
    bint accumulate
    FormulaParameters parameters


ctypedef struct ElementwisePlan:
    int formula
    int operands
    int dtype        # of the blocks that the kernel sees
    int ndim         # >= 1
    int64_t size
    int64_t shape[MAX_NDIM]
    int64_t strides[OPERANDS][MAX_NDIM]  # bytes
    int64_t run[OPERANDS]                # so many elements on end are contiguous, and of the plan's dtype; 0 if none
    int64_t offset[OPERANDS]             # from an operand's data to its first element in the plan's order
    int64_t itemsize[OPERANDS]
    int dtypes[OPERANDS]
    ElementwiseKernel kernel
    ElementwiseKernel stream             # for an output that is neither input; may be the same
    ConvertKernel fetch[OPERANDS]        # operand to block
    ConvertKernel deliver                # block to output
    bint accumulate
    FormulaParameters parameters
    int tile_axis                        # -1: no operand lies across the output (tiles.pxi)
    int64_t tile_rows, tile_columns      # elements along tile_axis and along the last axis
    bint across[OPERANDS]                # contiguous along tile_axis
    TransposeKernel transpose


cdef int main_input(int operands) noexcept nogil:
    """Return the input that the others, and the output, are compared with."""
    return operands - 1


cdef int check_input_dtypes(const ElementwiseSpec *spec, const Tensor *operand, int *result,
                            Failure *failure) noexcept nogil:
    """Check the dtypes of the inputs and find that of the result."""
    cdef int main = main_input(spec.operands), k
    for k in range(main, OUT, -1):
        if not is_floating(operand[k].dtype):
            return fail(failure, Rule.DTYPE_UNSUPPORTED, k)
    result[0] = operand[main].dtype
    for k in range(INPUT, main):
        if operand[k].dtype != operand[main].dtype and not spec.promotes:
            return fail(failure, Rule.DTYPE_MISMATCH, k, main)
        result[0] = promoted_dtype(result[0], operand[k].dtype)
    return Rule.PASSED


cdef int check_elementwise(const ElementwiseSpec *spec, const Tensor *operand, ElementwisePlan *plan,
                           Failure *failure) noexcept nogil:
    """Check every rule that does not depend on addresses, and set the plan's size and dtypes."""
    cdef const Tensor *out = &operand[OUT]
    cdef int k, d, result
    cdef int64_t size
    if not kernels.formula[spec.formula].accepts(&spec.parameters):
        return fail(failure, Rule.PARAMETERS_CONTRADICT)
    if check_input_dtypes(spec, operand, &result, failure):
        return failure.rule
    if out.dtype != result:
        if not spec.promotes:
            return fail(failure, Rule.DTYPE_MISMATCH, OUT, main_input(spec.operands))
        if kernels.convert[result][out.dtype] == NULL:
            return fail(failure, Rule.OUT_DTYPE_UNSUPPORTED, OUT)
        if spec.accumulate:
            if not is_floating(out.dtype):
                return fail(failure, Rule.ACCUMULATE_DTYPE, OUT)
            result = promoted_dtype(result, out.dtype)  # what out holds must not be rounded before adding
    for k in range(spec.operands):
        if operand[k].ndim != out.ndim:
            return fail(failure, Rule.SHAPE_MISMATCH, k, OUT)
        for d in range(out.ndim):
            if operand[k].shape[d] != out.shape[d]:
                return fail(failure, Rule.SHAPE_MISMATCH, k, OUT)
        if tensor_size(&operand[k], k, &size, failure):
            return failure.rule
        plan.dtypes[k] = operand[k].dtype
        plan.itemsize[k] = itemsize_of(operand[k].dtype)
    plan.size = size
    plan.dtype = result
    return check_output(out, OUT, failure)


cdef int check_addresses(const ElementwisePlan *plan, char **data, Failure *failure) noexcept nogil:
    """Refuse an output that overlaps an input without being exactly that input."""
    cdef int k, d
    cdef bint same
    if plan.size == 0:
        return Rule.PASSED
    for k in range(plan.operands):
        if data[k] == NULL:
            return fail(failure, Rule.NULL_DATA, k)
    for k in range(INPUT, plan.operands):
        same = data[k] == data[OUT] and plan.dtypes[k] == plan.dtypes[OUT]
        for d in range(plan.ndim):
            same = same and plan.strides[k][d] == plan.strides[OUT][d]
        if not same and views_overlap(
                data[OUT] + plan.offset[OUT], plan.ndim, plan.shape, plan.strides[OUT], plan.itemsize[OUT],
                data[k] + plan.offset[k], plan.ndim, plan.shape, plan.strides[k], plan.itemsize[k]):
            return fail(failure, Rule.PARTIAL_OVERLAP, k, OUT)
    return Rule.PASSED
