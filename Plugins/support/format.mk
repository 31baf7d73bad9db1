# Builds, tests and installs a plugin of one format: see plugin.mk, which this file includes. A package's Makefile may also set:
#   MODULES    what its tests import that is no Debian package (scripts/install-packages --tests); without it they are skipped
#   BENCH      what tests/bench.c links for the library that the plugin is compared with
# The Python with the modules; without any the system's, which has those of Debian.
PYTHON ?= $(firstword $(wildcard $(if $(MODULES),$(abspath ../..)/.build/formats/bin/python3,/usr/bin/python3)) python3)
include ../support/plugin.mk
BENCH ?= $(LIBRARIES)

build/bench: tests/bench.c ../testing/bench_format.h
	@mkdir -p build
	$(CC) $(TEST_CFLAGS) -o $@ $< $(BENCH) -ldl

test: all
	@$(if $(MODULES),$(PYTHON) -c 'import $(subst $(space),$(comma) ,$(strip $(MODULES)))' 2> /dev/null || \
	  { echo "skipped: no Python has $(MODULES) (scripts/install-packages --tests)" >&2; exit 0; };) \
	cd tests && $(UNDER) $(PYTHON) -B -m unittest -v test_$(NAME)
