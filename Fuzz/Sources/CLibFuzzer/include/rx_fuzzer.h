#ifndef RX_FUZZER_H
#define RX_FUZZER_H

#include <stddef.h>
#include <stdint.h>

/// libFuzzer as a library: calls `target` until it is told to stop by the arguments.
int LLVMFuzzerRunDriver(int *argc, char ***argv, int (*target)(const uint8_t *data, size_t size));

#endif
