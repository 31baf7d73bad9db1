# Builds, tests and installs a plugin of one format, written in C: its Makefile sets NAME and what follows where it applies, and includes this
# file. `make SANITIZE=1` checks memory.
#   PACKAGES   what pkg-config knows its libraries by
#   LIBRARIES  further options of the linker
#   MODULES    what its tests import that is no Debian package (scripts/install-packages --tests); without it they are skipped
#   BENCH      what tests/bench.c links for the library that the plugin is compared with
PREFIX ?= /usr/local
DESTDIR ?=
export RXD_PLUGIN_INCLUDE ?= $(abspath ../..)/Sources/CPlugin/include
CFLAGS ?= -O2 -g
OBJECTS := $(patsubst src/%.c,build/%.o,$(wildcard src/*.c))
ALL_CFLAGS := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -fPIC -fvisibility=hidden -I$(RXD_PLUGIN_INCLUDE) -I../support -Wa,-I. \
  $(if $(PACKAGES),$(shell pkg-config --cflags $(PACKAGES))) $(CFLAGS)
LIBRARIES += $(if $(PACKAGES),$(shell pkg-config --libs $(PACKAGES)))
BENCH ?= $(LIBRARIES)
ifdef SANITIZE
ALL_CFLAGS += -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
endif
# Python has no sanitizers of its own.
UNDER := $(if $(SANITIZE),SANITIZE=1 ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$(shell $(CC) -print-file-name=libasan.so) $(shell $(CC) -print-file-name=libubsan.so)")
# The one with the modules; without any the system's, which has those of Debian.
PYTHON ?= $(firstword $(wildcard $(if $(MODULES),$(abspath ../..)/.build/formats/bin/python3,/usr/bin/python3)) python3)
comma := ,
space := $(subst ,, )

.PHONY: all test bench install clean

all: $(NAME).so

$(NAME).so: $(OBJECTS)
	$(CC) $(ALL_CFLAGS) -shared -Wl,--as-needed,-z,relro,-z,now -o $@ $(OBJECTS) $(LIBRARIES) -pthread

build/%.o: src/%.c $(wildcard src/*.h) $(wildcard ../support/format_*.h) ../support/plugin_util.h $(RXD_PLUGIN_INCLUDE)/rxd_plugin.h spec.json
	@mkdir -p build
	$(CC) $(ALL_CFLAGS) -c -o $@ $<

# What the tests run beside the plugin is built without sanitizers.
TEST_CFLAGS = $(filter-out -fsanitize% -fno-sanitize%,$(ALL_CFLAGS))

build/bench: tests/bench.c ../testing/bench_format.h
	@mkdir -p build
	$(CC) $(TEST_CFLAGS) -o $@ $< $(BENCH) -ldl

test: all
	@$(if $(MODULES),$(PYTHON) -c 'import $(subst $(space),$(comma) ,$(strip $(MODULES)))' 2> /dev/null || \
	  { echo "skipped: no Python has $(MODULES) (scripts/install-packages --tests)" >&2; exit 0; };) \
	cd tests && $(UNDER) $(PYTHON) -B -m unittest -v test_$(NAME)

install: all
	install -D -m 0644 $(NAME).so $(DESTDIR)$(PREFIX)/lib/rxd/plugins/$(NAME).so

clean:
	rm -rf build $(NAME).so
