// Virtual time, marbles and probes for tests live here.
