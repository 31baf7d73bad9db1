# rxd: build, run, test, install. Start with `make run` and `make test`.

PREFIX ?= /usr/local
DESTDIR ?=
# Left empty: below PREFIX; the settings of /usr and /usr/local are in /etc. systemd looks for units in those of /usr and /usr/local;
# `systemctl link FILE` takes one from elsewhere.
SYSCONFDIR ?=
UNITDIR ?=
BUILD ?= .build
RXD := $(BUILD)/release/rxd
INSTALLATION = RXD="$(RXD)" PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" SYSCONFDIR="$(SYSCONFDIR)" UNITDIR="$(UNITDIR)"
# What is not optimised, the tests among it, has a place of its own: SwiftPM builds one thing at a time in a place, and the release program is
# optimised on one core mostly.
DEV_BUILD := $(BUILD)/dev
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

.PHONY: run test test-some test-swift test-program test-beside test-plugins-beside test-embedding test-plugins test-install test-compatibility test-unit test-flink pictures site test-site build build-release build-tests packages test-packages bench-packages bench bench-check fuzz faults fmt lint docs check-docs install uninstall deb dist image test-deb clean

## Installs missing packages, builds, and shows search as you type, without internet. Optimising takes four times as long as the rest of a build.
run: packages
	$(DEBUG) --product rxd
	@scripts/demo $(DEV_BUILD)/debug/rxd

# Builds are this user's; what the tests of Swift run has no privileges, as rxd has none where it is used.
AS_USER := scripts/as-user
# Only root can start a journald, mount a file system, or make files of other users.
ROOT_TESTS := JournaldPeerTests|journaldTakesEntries|fullMemoryFileSystem|fullDisk|thingsOfOtherUsersAreRefused|groupsAreOthers|groupsMayReadFoldersOfLogs|othersMayNotWriteASecret|linksInStickyDirectoriesAreTheirOwners|linksOfOthersAreNotFollowed|aSpecOfAnotherUserIsNotBelieved|AsUserTests|allKindsOfOtherUsersAreTrustedAlike
DEBUG := swift build --no-color-diagnostics --scratch-path $(DEV_BUILD)
# Run by itself: SwiftPM would write to the build directory.
SWIFT_TESTS := $(DEV_BUILD)/debug/rxdPackageTests.xctest --testing-library swift-testing

## Runs all tests.
test: test-packages packages
	$(MAKE) --no-print-directory -j 2 build-release build-tests
	$(MAKE) --no-print-directory -j 3 test-program test-beside test-plugins-beside

# The tests of Swift wait more than they compute, and so does what runs the program from outside. What needs the processor runs beside them, and
# gives way; so do the tests of plugins, of which many wait for servers.
test-swift:
	RXD=$(CURDIR)/$(RXD) SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH=$(TESTS_AT_ONCE) \
	  scripts/repeat-failures $(AS_USER) $(SWIFT_TESTS)
	[ "$$(id -u)" -ne 0 ] || scripts/repeat-failures $(SWIFT_TESTS) --filter '$(ROOT_TESTS)'
test-program:
	$(MAKE) --no-print-directory -j 1 test-swift test-unit
	Tests/Faults/run --self-test
	Tests/Faults/run hup/both-http --rounds 200 --rxd $(RXD)
	Tests/Faults/run --quick --rxd $(RXD) kill/file-file kill/durable-http kill/server-delay-file term/file-http \
	  mutate/killed syscalls/kill
	Benchmarks/nexmark/run $(RXD) --events 20000 --rounds 1
	Benchmarks/nexmark/run $(RXD) --events 20000 --rounds 1 --lateness 700
	Tests/Page/run --rxd $(RXD)
test-beside:
	nice -n 10 $(MAKE) --no-print-directory test-embedding test-install test-compatibility lint check-docs
	python3 -B -m unittest discover -s Benchmarks/bench -t Benchmarks
	python3 -B -m unittest discover -s Tests/Site
test-plugins-beside:
	nice -n 10 $(MAKE) --no-print-directory test-plugins

## Builds packages that depend on rxd, and runs their programs.
test-embedding: test-packages
	Tests/Embedding/run
	Tests/Connector/run

## Builds, and runs the tests whose suites or names match FILTER, a regular expression. After a changed line it takes less than a minute.
test-some: packages build-tests
	RXD=$(CURDIR)/$(DEV_BUILD)/debug/rxd $(AS_USER) $(SWIFT_TESTS) --filter '$(FILTER)'

## Runs the program as its unit does: under settings played without systemd, and in a real systemd where one can be started.
test-unit: test-packages build
	Tests/Unit/run --rxd $(RXD) || [ $$? -eq 77 ]
	Tests/Unit/run --rxd $(RXD) --systemd || [ $$? -eq 77 ]

## Installs into a stage: files, man pages, completions, drop-ins, and that nothing is left when it is removed.
test-install: test-packages build
	RXD=$(CURDIR)/$(RXD) python3 -B -m unittest discover -s Tests/Install

## Compares with what earlier versions have recorded: files, options, metrics, a state directory, plugins.
test-compatibility: test-packages build
	RXD=$(CURDIR)/$(RXD) python3 -B -m unittest discover -s Tests/Compatibility

## Builds and tests the packages under Plugins.
test-plugins: test-packages build
	@failed=; for plugin in $(PLUGINS); do \
	  echo "$$plugin"; RXD=$(CURDIR)/$(RXD) $(MAKE) --no-print-directory -C $$plugin test || failed="$$failed $$plugin"; \
	done; [ -z "$$failed" ] || { echo "make: the tests of these packages failed:$$failed" >&2; exit 1; }

build: packages
	$(RELEASE) --product rxd

# What `make test` builds at once.
build-release:
	$(RELEASE) --product rxd
	$(RELEASE) --product measure
build-tests:
	$(DEBUG) --build-tests

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

## Runs exported pipelines in a Flink 2.3 and compares the rows with those of rxd; FLINK="--events 200000" reads more. Downloads 329 MB once.
test-flink: build
	@scripts/install-packages --flink
	Tests/Flink/run $(RXD) $(BUILD)/flink $(FLINK)

fmt:
	swift format --in-place --recursive Sources Tests Package.swift Plugins/RxdPlugin/Sources Plugins/examples/swift-shout/Sources

lint:
	swift format lint --strict --recursive Sources Tests Package.swift Plugins/RxdPlugin/Sources Plugins/examples/swift-shout/Sources

## Takes the pictures of the live page for the documentation.
pictures: test-packages build
	Tests/Page/run --rxd $(RXD) --pictures docs/images

## Builds the documentation as pages that need no server, in .build/site.
site:
	@scripts/install-packages --site
	Site/build --out $(BUILD)/site

## Opens every page of the site in Chromium: links, search, a telephone's width, contrast, requests.
test-site: test-packages site
	Tests/Site/run --site $(BUILD)/site
	Tests/Site/run --site $(BUILD)/site --self-test

## Rewrites the generated files.
docs: build
	$(DEBUG) --product reference
	RXD=$(RXD) REFERENCE=$(DEV_BUILD)/debug/reference scripts/generate

## Fails if the generated files are out of date.
check-docs: build
	$(DEBUG) --product reference
	RXD=$(RXD) REFERENCE=$(DEV_BUILD)/debug/reference scripts/generate --check

## Installs below PREFIX (/usr/local), or in the stage DESTDIR.
install:
	scripts/install install $(INSTALLATION)

## Removes what `install` has made. Pipeline files, changed settings and plugins of the user's stay.
uninstall:
	scripts/install uninstall $(INSTALLATION)

## Builds Debian packages in .build/deb: rxd, rxd-doc, rxd-dev and one for each plugin.
deb: build
	@scripts/install-packages --deb
	scripts/deb --rxd $(RXD) --out $(BUILD)/deb

## Makes an archive in .build/dist that runs on Debian 12, Ubuntu 22.04 and newer systems without Swift.
dist: build
	@scripts/install-packages --deb
	scripts/dist --rxd $(RXD) --out $(BUILD)/dist

## Makes the directory of which packaging/oci/Containerfile makes an image.
image: build
	scripts/image --rxd $(RXD) --out $(BUILD)/image

## Builds packages, archive and image, and lives with them in a Debian 12 of debootstrap. Needs root and a mirror; takes minutes.
test-deb: build
	@scripts/install-packages --deb --tests
	Tests/Packages/run --rxd $(RXD) --cache $(BUILD)/debian

clean:
	rm -rf $(BUILD)
