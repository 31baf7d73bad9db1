#include "rx_value.h"
