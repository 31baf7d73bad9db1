// No declarations: the library is loaded before the libraries of a program.
