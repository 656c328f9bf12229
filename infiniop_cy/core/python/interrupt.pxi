# Ctrl-C while a long convolution runs: Python's signal handlers are run now and then on the way.
import threading

cdef extern from "Python.h":
    int check_signals "PyErr_CheckSignals"() noexcept  # leaves an exception set, which is to travel on

cdef enum:
    LONG_WORK = 1 << 24  # multiplications of a gradient; the slowest kernels take some 10 ms for them


cdef bint signal_raised() noexcept with gil:
    """Run the handlers of the signals that have come; say whether one of them raised."""
    return check_signals() != 0


cdef Interrupt *interrupt_of(const ConvPlan *plan, Interrupt *interrupt) except? NULL:
    """Prepare to be interrupted where the call is long and Python runs handlers in this thread; else return NULL."""
    if plan.work < LONG_WORK or threading.get_ident() != threading.main_thread().ident:
        return NULL
    begin_interrupt(interrupt, signal_raised)
    return interrupt


cdef int raise_if_stopped(const Interrupt *interrupt) except -1:
    """Raise what a handler raised, if one did."""
    return -1 if interrupt != NULL and interrupt.stopped else 0
