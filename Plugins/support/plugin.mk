# Builds and installs a native plugin written in C, in C++ (src/*.cc), or both. A package's Makefile sets NAME and what follows where it applies,
# includes this file, and adds its tests. `make SANITIZE=1` checks memory.
#   PACKAGES   what pkg-config knows its libraries by
#   LIBRARIES  further options of the linker
#   INCLUDES   further options of the preprocessor
#   GENERATED  objects of sources that its own rules make
comma := ,
space := $(subst ,, )
PREFIX ?= /usr/local
DESTDIR ?=
export RXD_PLUGIN_INCLUDE ?= $(abspath ../..)/Sources/CPlugin/include
CFLAGS ?= -O2 -g
SANITIZERS := $(if $(SANITIZE),-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
OBJECTS := $(patsubst src/%.c,build/%.o,$(wildcard src/*.c)) $(patsubst src/%.cc,build/%.o,$(wildcard src/*.cc)) $(GENERATED)
COMMON_FLAGS := -D_GNU_SOURCE -Wall -Wextra -Werror -fPIC -fvisibility=hidden -I$(RXD_PLUGIN_INCLUDE) -I../support $(INCLUDES) -Wa,-I. \
  $(if $(PACKAGES),$(shell pkg-config --cflags $(PACKAGES) 2> /dev/null)) $(CFLAGS) $(SANITIZERS)
C_FLAGS := -std=c11 $(COMMON_FLAGS)
CXX_FLAGS := -std=c++17 -fno-gnu-unique $(COMMON_FLAGS)
LIBRARIES += $(if $(PACKAGES),$(shell pkg-config --libs $(PACKAGES) 2> /dev/null))
# Why it cannot be compiled; asked when something is. Silence would end in errors about headers.
CHECK_PACKAGES = $(if $(PACKAGES),$(if $(shell pkg-config --exists $(PACKAGES) && echo yes),,\
  $(error $(NAME) needs pkg-config and the libraries that it knows as: $(PACKAGES); README.md names their Debian packages)))
# What the tests run beside the plugin is built without sanitizers.
TEST_CFLAGS := $(filter-out $(SANITIZERS),$(C_FLAGS))
# Python has no sanitizers of its own.
UNDER := $(if $(SANITIZE),SANITIZE=1 ASAN_OPTIONS=detect_leaks=0 \
  LD_PRELOAD="$(shell $(CC) -print-file-name=libasan.so) $(shell $(CC) -print-file-name=libubsan.so)")
PYTHON ?= python3
# A shell command: the classes of tests/test_NAME.py at once, in that directory. They wait most of the time.
TEST_CLASSES = runs=; for class in $$(sed -n "s/^class \([A-Za-z]*Tests\)(.*/\1/p" test_$(NAME).py); do \
    $(PYTHON) -B -m unittest -v test_$(NAME).$$class & runs="$$runs $$!"; \
  done; failed=0; for run in $$runs; do wait $$run || failed=1; done

.PHONY: all test kills bench install clean

all: $(NAME).so

$(NAME).so: $(OBJECTS)
	$(if $(wildcard src/*.cc),$(CXX) $(CXX_FLAGS),$(CC) $(C_FLAGS)) -shared -Wl,--as-needed,-z,relro,-z,now -o $@ \
	  $(OBJECTS) $(LDFLAGS) $(LIBRARIES) -pthread

HEADERS := $(wildcard src/*.h ../support/*.h) $(RXD_PLUGIN_INCLUDE)/rxd_plugin.h spec.json
build/%.o: src/%.c $(HEADERS)
	$(CHECK_PACKAGES)@mkdir -p build
	$(CC) $(C_FLAGS) -c -o $@ $<

build/%.o: src/%.cc $(HEADERS)
	$(CHECK_PACKAGES)@mkdir -p build
	$(CXX) $(CXX_FLAGS) -c -o $@ $<

install: all
	install -D -m 0644 $(NAME).so $(DESTDIR)$(PREFIX)/lib/rxd/plugins/$(NAME).so

clean:
	rm -rf build $(NAME).so
