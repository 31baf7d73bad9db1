#include "rx_fuzzer.h"
