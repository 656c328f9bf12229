// What a team of threads needs of the platform: OpenMP's region, a clock, counters that threads share, how much stack a
// thread has left, and whether the system lets a team be as large as it should.
#pragma once
#include <stdint.h>

#include <chrono>
#include <thread>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

typedef void (*TeamBody)(void *context, int thread);

// The thread sanitizer does not see into OpenMP's library: it is told that a region's beginning and its end put what
// the team's threads do in order with what their caller does before and after.
#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void *address), __tsan_release(void *address);
#define UNSEEN __attribute__((no_sanitize("thread")))
static inline void come_from(void *other) { __tsan_acquire(other); }
static inline void go_to(void *other) { __tsan_release(other); }
#else
#define UNSEEN
static inline void come_from(void *) {}
static inline void go_to(void *) {}
#endif

static inline void run_in_order(TeamBody body, void *context, int thread) {
    come_from(context);
    body(context, thread);
    go_to(context);
}

// Runs body once on each thread of a team, numbered from 0, the caller's own; returns when all have. There may be
// fewer than asked for.
UNSEEN static inline void run_region(int threads, TeamBody body, void *context) {
    (void)threads;
    go_to(context);
#pragma omp parallel num_threads(threads)
    run_in_order(body, context, omp_get_thread_num());
    come_from(context);
}

// Nanoseconds since some moment.
static inline int64_t clock_ns(void) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// An address of this thread's own.
static inline const char *this_thread(void) {
    static thread_local char here;
    return &here;
}

// Counters that threads share, in no order with anything else: what orders results is a round's end.
static inline int64_t shared_add(int64_t *counter, int64_t n) {
    return __atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}
static inline int64_t shared_get(const int64_t *counter) { return __atomic_load_n(counter, __ATOMIC_RELAXED); }
static inline void shared_set(int64_t *counter, int64_t value) { __atomic_store_n(counter, value, __ATOMIC_RELAXED); }
static inline void shared_or(int *flags, int value) {
    if (value) __atomic_fetch_or(flags, value, __ATOMIC_RELAXED);
}

// What one thread wrote before it told, another one sees that was told. Of two threads that each tell first and then
// look, one sees what the other told.
static inline int64_t told(const int64_t *what) { return __atomic_load_n(what, __ATOMIC_SEQ_CST); }
static inline void tell(int64_t *what, int64_t value) { __atomic_store_n(what, value, __ATOMIC_SEQ_CST); }
static inline void tell_more(int64_t *what, int64_t n) { __atomic_fetch_add(what, n, __ATOMIC_SEQ_CST); }

// Lets some time pass for a thread that has waited `turns` times: a moment at first, and later the core is offered to
// others.
static inline void wait_a_turn(int64_t turns) {
    enum { MOMENTS = 1024 };  // together some ten microseconds, as long as it takes to wake a thread
    if (turns >= MOMENTS) return std::this_thread::yield();
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("yield");
#endif
}

// The bytes of stack that this thread has left; a very large number where that cannot be found out.
static inline int64_t stack_left(void) {
    static thread_local char *lowest, *highest;
    char *here = (char *)__builtin_frame_address(0);
    if (!highest) {
        highest = here;  // so that it is asked once, whatever the answer
#if defined(__linux__)
        pthread_attr_t attributes;
        void *start;
        size_t size, guard = 0;
        if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
            if (pthread_attr_getstack(&attributes, &start, &size) == 0) {
                pthread_attr_getguardsize(&attributes, &guard);
                lowest = (char *)start + guard;
                highest = (char *)start + size;
            }
            pthread_attr_destroy(&attributes);
        }
#elif defined(__APPLE__)
        highest = (char *)pthread_get_stackaddr_np(pthread_self());
        lowest = highest - pthread_get_stacksize_np(pthread_self());
#endif
    }
    // A coroutine's own stack is none that the system knows.
    return lowest && here > lowest && here < highest ? here - lowest : INT64_MAX;
}

#if defined(__unix__) || defined(__APPLE__)
static inline void *wait_for_release(void *mutex) {
    pthread_mutex_lock((pthread_mutex_t *)mutex);
    pthread_mutex_unlock((pthread_mutex_t *)mutex);
    return NULL;
}
#endif

// How many threads beside this one the system lets start now, of those wanted: they are started, and end.
static inline int startable_threads(int wanted) {
#if defined(__unix__) || defined(__APPLE__)
    enum { MOST = 256 };
    pthread_t id[MOST];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    int started = 0;
    pthread_mutex_lock(&gate);
    while (started < wanted && started < MOST && pthread_create(&id[started], NULL, wait_for_release, &gate) == 0)
        started++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < started; i++) pthread_join(id[i], NULL);
    return started;
#else
    return wanted;
#endif
}

// A team of `threads`, or as many as the system allows: OpenMP ends the process where a thread is refused. Each caller
// asks once for each larger team, and for all of its threads: OpenMP keeps those of the caller's last team for the next
// one, but that may have been small. Where one is refused only half of the others are used: OpenMP ends threads that a
// smaller team does not need, and starts them anew while those may still have their stacks.
static inline int allowed_team(int threads) {
    static thread_local int allowed = 1, refused = 0;
    if (threads > allowed && !refused) {
        int others = startable_threads(threads - 1);
        refused = others < threads - 1;
        allowed = refused ? 1 + others / 2 : threads;
    }
    return threads < allowed ? threads : allowed;
}
