# A failure of the core as an exception, in which arguments have names.
cdef tuple ELEMENTWISE_NAMES = ("out", "input", "grad_output")
cdef tuple FORWARD_PLAN_NAMES = ("output", "input")
cdef tuple BACKWARD_PLAN_NAMES = ("grad_input", "input", "grad_output")
cdef tuple CONV_NAMES = ("grad_output", "input", "weight", "bias", "grad_input", "grad_weight", "grad_bias",
                         "stride", "padding", "dilation", "groups", "workspace", "INFINIOP_CY_CONV")


cdef int require_stack(str op) except -1:
    """Raise where this thread has too little stack to compute."""
    cdef Failure failure
    if check_stack(&failure):
        raise error_of(&failure, op, (), {})
    return 0


cdef object error_of(const Failure *failure, str op, tuple arguments, dict tensors, refusal=None):
    """Return the exception for a failure. arguments: the names that its numbers stand for. refusal: a function that
    returns the message of PARAMETERS_CONTRADICT."""

    def name_of(i):
        return arguments[i] if 0 <= i < len(arguments) else None
    return status.explain(op, Rule(failure.rule), arg=name_of(failure.arg), against=name_of(failure.against),
                          axis=failure.axis, got=failure.got, expected=failure.expected, tensors=tensors,
                          constraint=refusal() if failure.rule == Rule.PARAMETERS_CONTRADICT
                          else failure.text.decode() if failure.text != NULL else "")
