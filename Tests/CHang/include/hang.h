// No declarations: the library replaces calls of the C library.
