# Every check has a Rule; its status is the rule's number over 100. infiniop_cy/status.py holds the
# message of each, keyed by these names.
cpdef enum Rule:
    PASSED = 0
    STACK_TOO_SMALL = 101
    PARAMETERS_CONTRADICT = 301
    PARTIAL_OVERLAP = 302
    STRIDE_NOT_POSITIVE = 303
    DILATION_NOT_POSITIVE = 304
    PADDING_NEGATIVE = 305
    GROUPS_NOT_POSITIVE = 306
    GROUPS_DO_NOT_DIVIDE = 307
    OUTPUTS_OVERLAP = 308
    TOO_LARGE = 309
    ADDRESS_UNALIGNED = 310
    ALGORITHM_REFUSES = 311
    NULL_DATA = 401
    DTYPE_UNSUPPORTED = 1001
    DTYPE_MISMATCH = 1002
    ACCUMULATE_DTYPE = 1003
    OUT_DTYPE_UNSUPPORTED = 1004
    SHAPE_MISMATCH = 1101
    NDIM_UNSUPPORTED = 1102
    NDIM_MISMATCH = 1103
    SHAPE_NEGATIVE = 1104
    AXIS_MISMATCH = 1105
    KERNEL_EMPTY = 1106
    KERNEL_TOO_LARGE = 1107
    OUT_ZERO_STRIDE = 1201
    OUT_SELF_OVERLAP = 1202
    WORKSPACE_TOO_SMALL = 1301


# A failure says which rule failed, on which argument, against which other one and at which axis (-1 for none), and
# which number was given and expected there; or a reason in words, else NULL.
ctypedef struct Failure:
    int rule
    int arg
    int against
    int axis
    int64_t got
    int64_t expected
    const char *text


cdef inline int fail(Failure *failure, int rule, int arg=-1, int against=-1, int axis=-1,
                     int64_t got=0, int64_t expected=0) noexcept nogil:
    """Record a failure and return its rule, so that a check can end with `return fail(...)`."""
    failure.rule = rule
    failure.arg = arg
    failure.against = against
    failure.axis = axis
    failure.got = got
    failure.expected = expected
    failure.text = NULL
    return rule
