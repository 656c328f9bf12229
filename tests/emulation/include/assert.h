// assert in a kernel ends the launch, not the process. No guard: the real header has none either.
#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define EMULATION_TEXT_OF(x) #x
#define EMULATION_TEXT(x) EMULATION_TEXT_OF(x)
#define assert(condition) \
  ((condition) ? (void)0 : emulation_fault(710, "assertion failed at line " EMULATION_TEXT(__LINE__) ": " #condition))
#endif
