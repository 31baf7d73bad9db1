// Counts retains and releases. A program linked with `--wrap=swift_retain` calls __wrap_swift_retain wherever
// swift_retain is written, in the runtime's own library too, if that is linked statically.
//
// Callers of these functions rely on registers that a C function may change, so counting is a single instruction, and
// the jump after it preserves all registers.
#include "rx_references.h"

#include "rx_counting.h"

__thread unsigned long rx_references __attribute__((visibility("hidden"), used));

#if defined(__x86_64__)
#define WRAP(name)                                                                                         \
  __asm__(".text\n"                                                                                        \
          ".weak __real_" #name "\n"                                                                       \
          ".globl __wrap_" #name "\n"                                                                      \
          ".type __wrap_" #name ", @function\n"                                                            \
          "__wrap_" #name ":\n"                                                                            \
          "  incq %fs:rx_references@tpoff\n"                                                               \
          "  jmp __real_" #name "@PLT\n")

WRAP(swift_retain);
WRAP(swift_retain_n);
WRAP(swift_release);
WRAP(swift_release_n);
WRAP(swift_unownedRetain);
WRAP(swift_unownedRelease);
WRAP(swift_unownedRetainStrong);
WRAP(swift_weakLoadStrong);
WRAP(swift_weakTakeStrong);
#endif

// Exists only where the linker was told to wrap it.
extern char __real_swift_retain __attribute__((weak));

int rx_counting_references(void) { return &__real_swift_retain != 0; }
