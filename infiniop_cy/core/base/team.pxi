# How a call's units of work are shared among threads; the only place where threads are started.
#
# The calling thread and OpenMP's take units as they come, so that no unit waits for a thread that is late. But OpenMP's
# region ends when all of its threads have been there, and where other processes keep the cores busy a thread may come
# milliseconds late, to find nothing left to do. That lateness is measured: while it is recent, a call begins alone,
# and goes on with a team only if what is left is worth more than the team was late.
cdef extern from "base/team.h" nogil:
    ctypedef void (*TeamBody)(void *context, int thread) noexcept nogil
    void run_region(int size, TeamBody body, void *context)
    int64_t clock_ns()
    const char *this_thread()
    int64_t shared_add(int64_t *counter, int64_t n)
    int64_t shared_get(const int64_t *counter)
    void shared_set(int64_t *counter, int64_t value)
    void shared_or(int *flags, int value)
    int64_t stack_left()
    int allowed_team(int size)

cdef enum:
    STACK_NEEDED = 65536        # bytes that a thread has to have left, the caller's or OpenMP's: tiles take 48 kB
    LATE_FROM = 20000           # ns; less is what waking a thread takes
    LATE_SPAN = 10              # a lateness fades over so many times itself: so rarely it is met again
    INTERRUPT_SPAN = 10000000   # ns between two questions whether to stop


cdef int check_stack(Failure *failure) noexcept nogil:
    """Refuse to compute where the calling thread would run out of stack, which ends the process."""
    cdef int64_t left = stack_left()
    if left < STACK_NEEDED:
        return fail(failure, Rule.STACK_TOO_SMALL, -1, -1, -1, left, STACK_NEEDED)
    return Rule.PASSED


# Whether the caller wants to stop. Its own thread asks now and then, all others look at what it was told.
ctypedef struct Interrupt:
    bint (*wanted)() noexcept nogil
    const char *caller          # its this_thread()
    int64_t next_ns             # when to ask next
    int64_t stopped             # shared: work was left out, and outputs are incomplete


ctypedef struct TeamWork:
    bint (*units)(const void *context, int64_t first, int64_t stop, int thread) noexcept nogil
    const void *context
    int64_t count               # of units, 0 to count - 1
    int64_t step                # units taken at a time
    Interrupt *interrupt        # NULL: it cannot be stopped
    int team
    int found                   # shared: whether some units() returned True
    int64_t begin               # parts are of the units from here on
    int64_t next[MAX_THREADS]   # shared: the first unit of each part that nobody has taken
    int64_t began_ns, ended_ns, taken  # the calling thread's time in a region, and how often it took units


# How late the last team was that was late, and when; of all threads of the process.
cdef int64_t team_late_ns = 0, team_late_at = 0
cdef bint lateness_counts = True


def count_lateness(bint counts):
    """For tests: whether a team that was late is avoided for a while. Where not, every call that may use threads does,
    however busy the machine is."""
    global lateness_counts
    lateness_counts = counts
    shared_set(&team_late_ns, 0)


cdef int64_t lateness(int64_t now) noexcept nogil:
    """Estimate how late a team would be now: as late as it was, fading to 0."""
    cdef int64_t late = shared_get(&team_late_ns), age = now - shared_get(&team_late_at)
    return max(<int64_t>0, late - age // LATE_SPAN)


cdef void note_lateness(int64_t late, int64_t now) noexcept nogil:
    """Remember how long a region took beyond the work in it."""
    if lateness_counts and late > LATE_FROM and late > lateness(now):
        shared_set(&team_late_ns, late)
        shared_set(&team_late_at, now)


cdef void begin_interrupt(Interrupt *interrupt, bint (*wanted)() noexcept nogil) noexcept nogil:
    """Let this thread ask from INTERRUPT_SPAN on."""
    interrupt.wanted, interrupt.caller, interrupt.stopped = wanted, this_thread(), False
    interrupt.next_ns = clock_ns() + INTERRUPT_SPAN


cdef bint must_stop(Interrupt *interrupt) noexcept nogil:
    """Ask, if it is time to, whether the caller wants to stop; NULL never does."""
    if interrupt == NULL or shared_get(&interrupt.stopped):
        return interrupt != NULL
    if interrupt.caller == this_thread() and clock_ns() >= interrupt.next_ns:
        shared_set(&interrupt.stopped, interrupt.wanted())
        interrupt.next_ns = clock_ns() + INTERRUPT_SPAN
    return shared_get(&interrupt.stopped)


cdef int64_t part_begin(const TeamWork *work, int part) noexcept nogil:
    """Return the first unit of a thread's part: units that follow each other read the same memory, or what was asked
    for ahead of time."""
    return work.begin + (work.count - work.begin) * part // work.team


cdef bint take_units(TeamWork *work, int thread, int64_t *first, int64_t *stop) noexcept nogil:
    """Take the next units of the thread's part, or of a part that others have not done; False where there are none."""
    cdef int64_t end
    cdef int k, part
    for k in range(work.team):
        part = (thread + k) % work.team
        end = part_begin(work, part + 1)
        if shared_get(&work.next[part]) < end:
            first[0] = shared_add(&work.next[part], work.step)
            if first[0] < end:
                stop[0] = min(end, first[0] + work.step)
                return True
    return False


cdef void leave_rest(TeamWork *work) noexcept nogil:
    """Let nobody take more units."""
    cdef int part
    for part in range(work.team):
        shared_set(&work.next[part], work.count)


cdef void team_body(void *context, int thread) noexcept nogil:
    """Do one thread's share of a region. A thread of too little stack leaves it to the others."""
    cdef TeamWork *work = <TeamWork *>context
    cdef int64_t first = 0, stop = 0
    if thread == 0:
        work.began_ns = clock_ns()
    elif stack_left() < STACK_NEEDED:
        return
    while take_units(work, thread, &first, &stop):
        shared_or(&work.found, work.units(work.context, first, stop, thread))
        if thread == 0:
            work.taken += 1
            if must_stop(work.interrupt):
                leave_rest(work)
    if thread == 0:
        work.ended_ns = clock_ns()


cdef void work_alone(TeamWork *work, int64_t step, int64_t late) noexcept nogil:
    """Work on this thread, some units at a time, until all is done or what is left is worth a team that is so late."""
    cdef int64_t start = clock_ns() if late else 0, spent, stop
    while work.begin < work.count:
        stop = min(work.count, work.begin + step)
        work.found |= work.units(work.context, work.begin, stop, 0)
        work.begin = stop
        if must_stop(work.interrupt):
            work.begin = work.count
        elif late:
            spent = clock_ns() - start
            if spent * (work.count - stop) // stop * (work.team - 1) // work.team > late:
                return


cdef bint run_team(TeamWork *work, int threads, int64_t alone_step) noexcept nogil:
    """Do all units on at most so many threads; return what units() found. The caller has set units, context, count,
    step and interrupt. alone_step: units at a time where one thread works."""
    cdef int64_t start, now
    cdef int part
    work.begin = work.found = 0
    work.team = <int>min(<int64_t>threads, work.count)
    if must_stop(work.interrupt):
        return False
    if work.team > 1:
        work.team = allowed_team(work.team)
    if work.team < 2:  # no region at all: a forked child must not enter one
        work_alone(work, alone_step if work.interrupt != NULL else work.count, 0)
        return work.found
    if shared_get(&team_late_ns):
        start = lateness(clock_ns())
        if start:
            work_alone(work, alone_step, start)
            if work.count - work.begin < 2:
                work_alone(work, alone_step, 0)
                return work.found
        else:
            shared_set(&team_late_ns, 0)
    work.taken = 0
    for part in range(work.team):
        work.next[part] = part_begin(work, part)
    start = clock_ns()
    run_region(work.team, team_body, work)
    now = clock_ns()
    # The others may at the end be busy with what they took last.
    note_lateness(now - start - (work.ended_ns - work.began_ns) * (work.taken + 2) // max(<int64_t>1, work.taken), now)
    return work.found
