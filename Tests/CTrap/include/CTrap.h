// Nothing to call: it is loaded before the libraries of a program.
