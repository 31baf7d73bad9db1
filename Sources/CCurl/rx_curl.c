#include "rx_curl.h"
