# How many threads a call may use. Its own num_threads goes before `with threads(n)`, that before
# INFINIOP_CY_NUM_THREADS, that before OpenMP's setting; a forked child uses one. OpenMP's setting is never changed.
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from cpython.contextvars cimport PyContextVar_New, PyContextVar_Get

cdef enum:
    MAX_THREADS = 256  # more would only risk that the system refuses them, which ends the process

# Inside `with threads(n)` its value is (n, the value outside).
cdef object threads_variable = PyContextVar_New("infiniop_cy.threads", NULL)


cdef int environment_threads() noexcept nogil:
    """Read INFINIOP_CY_NUM_THREADS; 0 where it is not set, -1 where it is no positive integer."""
    cdef const char *text = getenv("INFINIOP_CY_NUM_THREADS")
    cdef char *end
    cdef long value
    if text == NULL or text[0] == 0:
        return 0
    value = strtol(text, &end, 10)
    if end[0] != 0 or value < 1:
        return -1
    return <int>min(value, <long>MAX_THREADS)


cdef bint environment_refused = environment_threads() < 0  # then calls take the general way, which says so


cdef int default_threads() noexcept nogil:
    """Return the number of threads of a call that no Python setting applies to. An INFINIOP_CY_NUM_THREADS that is no
    number of threads says nothing here: Python's calls, and C's handles, refuse it."""
    cdef int n = environment_threads()
    if in_forked_child or openmp_version() == 0:
        return 1
    if n <= 0:
        n = omp_get_max_threads()
    return max(1, min(n, <int>MAX_THREADS))


cdef int positive_int(object value, str op) except -1:
    """Check a number of threads, and bring it down to MAX_THREADS."""
    try:
        n = value.__index__()
    except (AttributeError, TypeError):
        n = 0
    if isinstance(value, bool) or n < 1:
        raise status.BadParam(f"{op}: num_threads is {value!r}, expected a positive integer")
    return <int>min(n, MAX_THREADS)


cdef int check_environment(str op) except -1:
    """Refuse an INFINIOP_CY_NUM_THREADS that is no number of threads."""
    if environment_threads() < 0:
        text = getenv("INFINIOP_CY_NUM_THREADS").decode(errors="replace")
        raise status.BadParam(f"{op}: INFINIOP_CY_NUM_THREADS is {text!r}, expected a positive integer")
    return 0


cdef int resolve_threads(object num_threads, str op) except -1:
    """Return the number of threads of a call whose num_threads argument is this; None: it gave none."""
    cdef PyObject *scoped = NULL
    cdef int n
    if num_threads is not None:
        n = positive_int(num_threads, op)
    else:
        if PyContextVar_Get(threads_variable, NULL, &scoped) < 0:
            return -1
        value = None
        if scoped != NULL:
            value = <object>scoped
            Py_DECREF(value)  # the reference that PyContextVar_Get gave
        if value is None:  # outside any context, or one was left
            check_environment(op)
            return default_threads()
        n = value[0]
    return 1 if in_forked_child or openmp_version() == 0 else n


def thread_settings():
    """Return how many threads a call would use now, and the reason in words."""
    cdef int n
    try:
        n = resolve_threads(None, "")
    except status.BadParam as error:
        return default_threads(), f"calls are refused{error}"
    if openmp_version() == 0:
        return n, "built without OpenMP"
    if in_forked_child:
        return n, "forked child: OpenMP's threads do not survive a fork"
    if threads_variable.get(None) is not None:
        return n, "threads() context"
    if environment_threads():
        return n, "INFINIOP_CY_NUM_THREADS"
    return n, "OpenMP's setting"


class threads:
    """``with threads(n):`` limits every call inside, in this thread or task, to n threads.

    Nesting and asyncio tasks work as with any context variable. ``num_threads=`` of a call goes before it.

    Parameters
    ----------
    n : int
        At least 1.

    Raises
    ------
    BadParam
        For anything else.

    Examples
    --------
    >>> import numpy as np
    >>> import infiniop_cy as iop
    >>> with iop.threads(1):
    ...     iop.relu(np.float32([-1, 1]))
    array([0., 1.], dtype=float32)
    """

    def __init__(self, n):
        self._n = positive_int(n, "threads")

    def __enter__(self):
        threads_variable.set((self._n, threads_variable.get(None)))
        return self

    def __exit__(self, *exc_info):
        limits = threads_variable.get(None)
        if limits is not None:  # else this is another context than that which entered
            threads_variable.set(limits[1])
