# How a call's units of work are shared among threads; the only place where threads are started.
#
# A call has rounds: units that may run in any order, after all those of the round before. The calling thread and
# OpenMP's take units as they come, so that no unit waits for a thread that is late, and a round ends when its units are
# done, whoever is missing. All rounds of a call share one region of OpenMP's, since waking its threads takes as long as
# a small round; between rounds they wait awake, for microseconds.
#
# But a region ends when all of its threads have been there, and where other processes keep the cores busy a thread may
# come milliseconds late, to find nothing left to do. That lateness is measured: while it is recent, each round begins
# alone, and goes on with a region of its own only if what is left is worth more than a team was late. A call that is
# known to be worth more does not begin alone: its first unit may be half of it.
cdef extern from "base/team.h" nogil:
    ctypedef void (*TeamBody)(void *context, int thread) noexcept nogil
    void run_region(int size, TeamBody body, void *context)
    int64_t clock_ns()
    const char *this_thread()
    int64_t shared_add(int64_t *counter, int64_t n)
    int64_t shared_get(const int64_t *counter)
    void shared_set(int64_t *counter, int64_t value)
    void shared_or(int *flags, int value)
    int64_t told(const int64_t *what)
    void tell(int64_t *what, int64_t value)
    void tell_more(int64_t *what, int64_t n)
    void wait_a_turn(int64_t turns)
    int64_t stack_left()
    int allowed_team(int size)

cdef enum:
    STACK_NEEDED = 65536        # bytes that a thread has to have left, the caller's or OpenMP's: tiles take 48 kB
    LATE_FROM = 20000           # ns; less is what waking a thread takes
    LATE_SPAN = 10              # a lateness fades over so many times itself: so rarely it is met again
    INTERRUPT_SPAN = 10000000   # ns between two questions whether to stop
    LEAVING_TURNS = 1000        # some microseconds, in which a thread that is awake leaves


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


# A round.
ctypedef struct TeamWork:
    bint (*units)(const void *context, int64_t first, int64_t stop, int thread) noexcept nogil
    const void *context
    int64_t count               # of units, 0 to count - 1
    int64_t step                # units taken at a time
    Interrupt *interrupt        # NULL: it cannot be stopped
    int parts                   # one for each thread
    int found                   # shared: whether some units() returned True
    int64_t begin               # parts are of the units from here on
    int64_t next[MAX_THREADS]   # shared: the first unit of each part that nobody has taken
    int64_t taken               # how often the calling thread took units


cdef enum:
    NO_ROUND = 0
    CALL_OVER = -1


# The threads of a call.
ctypedef struct Team:
    int threads                 # at most
    bint in_region              # in a region: rounds are shared with those who are there
    int64_t late_ns             # how long the calling thread has waited for others beyond the work that they had
    void (*program)(Team *team, void *context) noexcept nogil  # what the calling thread does there
    void *context
    TeamWork *work              # of the round
    int64_t rounds              # how many there have been
    char apart[64]              # the others look at what follows all the time
    int64_t round               # shared: the number of the round, from 1, NO_ROUND between rounds, or CALL_OVER
    char apart_too[64]
    int64_t inside              # shared: how many of the others may be looking at the round
    int64_t present             # shared: how many of the others are in the region


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


cdef int64_t lateness_now() noexcept nogil:
    """Estimate how late a team would be; forget what has faded, so that nobody looks at the clock for it."""
    cdef int64_t late
    if not shared_get(&team_late_ns):
        return 0
    late = lateness(clock_ns())
    if not late:
        shared_set(&team_late_ns, 0)
    return late


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
    return work.begin + (work.count - work.begin) * part // work.parts


cdef bint take_units(TeamWork *work, int thread, int64_t *first, int64_t *stop) noexcept nogil:
    """Take the next units of the thread's part, or of a part that others have not done; False where there are none."""
    cdef int64_t end
    cdef int k, part
    for k in range(work.parts):
        part = (thread + k) % work.parts
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
    for part in range(work.parts):
        shared_set(&work.next[part], work.count)


cdef void work_together(TeamWork *work, int thread) noexcept nogil:
    """Do one thread's share of a round."""
    cdef int64_t first = 0, stop = 0
    while take_units(work, thread, &first, &stop):
        shared_or(&work.found, work.units(work.context, first, stop, thread))
        if thread == 0:
            work.taken += 1
            if must_stop(work.interrupt):
                leave_rest(work)


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
            if spent * (work.count - stop) // stop * (work.parts - 1) // work.parts > late:
                return


# ---- in a region

cdef void help_rounds(Team *team, int thread) noexcept nogil:
    """Do one of the others' share of all rounds. One that comes late finds the round that there is; the calling thread
    changes none while somebody is inside."""
    cdef int64_t last = NO_ROUND, turns = 0, round = told(&team.round)
    while round != CALL_OVER:
        if round == NO_ROUND or round == last:
            wait_a_turn(turns)
            turns += 1
        else:
            tell_more(&team.inside, 1)
            if told(&team.round) == round:
                work_together(team.work, thread)
                last = round
            tell_more(&team.inside, -1)
            turns = 0
        round = told(&team.round)


cdef void wait_until_none(const int64_t *there, int64_t most_turns) noexcept nogil:
    """Wait until a counter is 0, or that long."""
    cdef int64_t turns = 0
    while told(there) and turns < most_turns:
        wait_a_turn(turns)
        turns += 1


cdef void run_round(Team *team, TeamWork *work) noexcept nogil:
    """Do a round with those who are there."""
    cdef int64_t start = clock_ns(), done
    cdef int part
    work.taken = 0
    for part in range(work.parts):
        work.next[part] = part_begin(work, part)
    team.work = work
    team.rounds += 1
    tell(&team.round, team.rounds)
    work_together(work, 0)
    tell(&team.round, NO_ROUND)
    done = clock_ns()
    wait_until_none(&team.inside, INT64_MAX)
    if work.taken:  # the others may still be busy with what they took last
        team.late_ns += max(<int64_t>0, clock_ns() - done - 2 * (done - start) // work.taken)


cdef void team_body(void *context, int thread) noexcept nogil:
    """Be one thread of a region. One of too little stack leaves all to the others."""
    cdef Team *team = <Team *>context
    if thread == 0:
        team.late_ns += clock_ns()
        team.program(team, team.context)
        tell(&team.round, CALL_OVER)
        team.late_ns -= clock_ns()
        # Who waits last at the region's end need not be woken.
        wait_until_none(&team.present, LEAVING_TURNS)
    elif stack_left() >= STACK_NEEDED:
        tell_more(&team.present, 1)
        help_rounds(team, thread)
        tell_more(&team.present, -1)


cdef void open_region(Team *team, void (*program)(Team *, void *) noexcept nogil, void *context) noexcept nogil:
    """Run what the calling thread does within a region, and note how late the others were."""
    team.program, team.context, team.in_region = program, context, True
    team.rounds = team.round = NO_ROUND
    team.inside = team.present = 0
    team.late_ns = -clock_ns()
    run_region(team.threads, team_body, team)
    team.in_region = False
    note_lateness(team.late_ns + clock_ns(), clock_ns())


cdef void only_round(Team *team, void *work) noexcept nogil:
    """Be the program of a region for one round."""
    run_round(team, <TeamWork *>work)


# ---- what callers do

cdef void begin_team(Team *team, int threads) noexcept nogil:
    """Make a team of at most so many threads, this one among them."""
    team.threads, team.in_region = allowed_team(threads) if threads > 1 else 1, False


cdef void run_rounds(Team *team, int64_t least_ns, void (*program)(Team *, void *) noexcept nogil,
                     void *context) noexcept nogil:
    """Call program(team, context), whose rounds share a region, unless a team was late lately by more than threads
    save. least_ns: what the calling thread alone would take, at least."""
    # One thread opens no region at all: a forked child must not.
    if team.threads < 2 or least_ns - least_ns // team.threads < lateness_now():
        program(team, context)
    else:
        open_region(team, program, context)


cdef bint share_units(Team *team, TeamWork *work, int64_t alone_step) noexcept nogil:
    """Do all units of a round; return what units() found. The caller has set units, context, count, step and interrupt.
    alone_step: units at a time where one thread works."""
    cdef int64_t late
    work.begin = work.found = 0
    work.parts = <int>min(<int64_t>team.threads, work.count)
    if must_stop(work.interrupt):
        return False
    if work.parts < 2:
        work_alone(work, alone_step if work.interrupt != NULL else work.count, 0)
        return work.found
    if team.in_region:
        run_round(team, work)
        return work.found
    late = lateness_now()
    if late:
        work_alone(work, alone_step, late)
        if work.count - work.begin < 2:
            work_alone(work, alone_step, 0)
            return work.found
    open_region(team, only_round, work)
    return work.found


cdef bint run_team(TeamWork *work, int threads, int64_t alone_step) noexcept nogil:
    """Do all units of a call of one round, on at most so many threads."""
    cdef Team team
    begin_team(&team, <int>min(<int64_t>threads, work.count))
    return share_units(&team, work, alone_step)
