# rxd: build, run, test, install. Start with `make run` and `make test`.

PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= .build
RXD := $(BUILD)/release/rxd
# Overlapping accesses to one variable are found by debug builds, which run all tests; a release build does not spend a
# tenth of its time on checking again. Values are two words, written and read one after the other: vectorised
# straight-line code would read both at once and wait until what was just written has reached the cache.
RELEASE := swift build --no-color-diagnostics -c release --static-swift-stdlib --disable-local-rpath \
  -Xswiftc -enforce-exclusivity=unchecked -Xswiftc -Xllvm -Xswiftc -vectorize-slp=false

# All tests share two threads on two cores. Were all of them under way at once, one that waits would go on minutes later, when
# every other test had had its turn, and limits of time would be those of the whole run.
TESTS_AT_ONCE ?= 3
# Each a package of its own, with a Makefile.
PLUGINS := $(patsubst %/Makefile,%,$(wildcard Plugins/*/Makefile Plugins/examples/*/Makefile))

.PHONY: run test test-plugins pictures build packages test-packages bench-packages bench bench-check fuzz faults fmt lint docs check-docs install uninstall clean

## Installs missing packages, builds, and shows search as you type, without internet.
run: build
	@scripts/demo $(RXD)

## Runs all tests.
test: test-packages build
	$(RELEASE) --product measure
	swift build --no-color-diagnostics --build-tests
	RXD=$(CURDIR)/$(RXD) SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH=$(TESTS_AT_ONCE) \
	  swift test --no-color-diagnostics --skip-build
	Tests/Embedding/run
	Tests/Faults/run --self-test
	Tests/Faults/run hup/both-http --rounds 200 --rxd $(RXD)
	Tests/Faults/run --quick --rxd $(RXD) kill/file-file kill/durable-http kill/server-delay-file term/file-http \
	  mutate/killed syscalls/kill
	Tests/Page/run --rxd $(RXD)
	python3 -B -m unittest discover -s Benchmarks/bench -t Benchmarks
	$(MAKE) --no-print-directory test-plugins lint check-docs

## Builds and tests the packages under Plugins.
test-plugins: test-packages build
	for plugin in $(PLUGINS); do RXD=$(CURDIR)/$(RXD) $(MAKE) --no-print-directory -C $$plugin test || exit 1; done

build: packages
	$(RELEASE) --product rxd

packages:
	@scripts/install-packages

test-packages:
	@scripts/install-packages --tests

## Measures speed and prints tables, in under five minutes. BENCH="--long --peers" measures more; see docs/benchmarks.md.
bench: bench-packages build
	$(RELEASE) --product measure
	Benchmarks/run $(RXD) --measure $(BUILD)/release/measure $(BENCH)
	Benchmarks/plugins/run $(RXD) 3

## Exits with 1 if something is worse than Benchmarks/thresholds.json allows, with 75 if the machine is too busy to tell.
bench-check: bench-packages build
	$(RELEASE) --product measure
	$(BUILD)/release/measure --count
	Benchmarks/run $(RXD) --check $(BENCH)

bench-packages:
	@scripts/install-packages --bench

## Fuzzes the expression language, the YAML reader and the decoders, FUZZ_SECONDS (60) each.
fuzz: packages
	Fuzz/run

## Kills, cuts and starves rxd, and judges what it delivered; takes an hour. FAULTS="kill/file-http --rounds 100" runs less.
faults: test-packages build
	Tests/Faults/run --rxd $(RXD) $(FAULTS)

fmt:
	swift format --in-place --recursive Sources Tests Package.swift Plugins/RxdPlugin/Sources Plugins/examples/swift-shout/Sources

lint:
	swift format lint --strict --recursive Sources Tests Package.swift Plugins/RxdPlugin/Sources Plugins/examples/swift-shout/Sources

## Takes the pictures of the live page for the documentation.
pictures: test-packages build
	Tests/Page/run --rxd $(RXD) --pictures docs/images

## Rewrites the generated files.
docs: build
	swift build --no-color-diagnostics --product reference
	RXD=$(RXD) scripts/generate

## Fails if the generated files are out of date.
check-docs: build
	swift build --no-color-diagnostics --product reference
	RXD=$(RXD) scripts/generate --check

install:
	install -D -m 0755 $(RXD) $(DESTDIR)$(PREFIX)/bin/rxd
	-strip --strip-debug $(DESTDIR)$(PREFIX)/bin/rxd
	install -D -m 0644 systemd/rxd.service $(DESTDIR)/lib/systemd/system/rxd.service
	install -D -m 0644 systemd/rxd@.service $(DESTDIR)/lib/systemd/system/rxd@.service
	sed -i 's|/usr/bin/rxd|$(PREFIX)/bin/rxd|g' $(DESTDIR)/lib/systemd/system/rxd.service $(DESTDIR)/lib/systemd/system/rxd@.service
	install -D -m 0644 Sources/CPlugin/include/rxd_plugin.h $(DESTDIR)$(PREFIX)/include/rxd_plugin.h
	install -d -m 0755 $(DESTDIR)$(PREFIX)/lib/rxd/plugins
	cd Plugins/RxdPlugin && find Package.swift Sources -type f,l -exec install -D -m 0644 {} $(abspath $(DESTDIR)$(PREFIX))/share/rxd/RxdPlugin/{} \;
	install -d -m 0755 $(DESTDIR)/etc/rxd/pipelines
	install -d -m 0755 $(DESTDIR)$(PREFIX)/share/rxd/examples
	cp -r pipelines/. $(DESTDIR)$(PREFIX)/share/rxd/examples/
	find $(DESTDIR)$(PREFIX)/share/rxd/examples -name '*.yaml' \
	  -exec sed -i 's|\([^/]\)pipelines/|\1$(PREFIX)/share/rxd/examples/|g' {} +

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/rxd $(DESTDIR)$(PREFIX)/include/rxd_plugin.h
	-rmdir $(DESTDIR)$(PREFIX)/lib/rxd/plugins $(DESTDIR)$(PREFIX)/lib/rxd
	rm -f $(DESTDIR)/lib/systemd/system/rxd.service $(DESTDIR)/lib/systemd/system/rxd@.service
	rm -rf $(DESTDIR)$(PREFIX)/share/rxd

clean:
	rm -rf $(BUILD)
