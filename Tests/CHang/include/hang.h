// Nothing to call: the library takes the place of calls of the C library.
