#include <malloc.h>

#include "rx_json.h"

size_t rx_memory_size(void *memory) { return malloc_usable_size(memory); }
