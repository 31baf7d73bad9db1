# How a plugin in Swift is built: the Swift runtime is in the library, and only the two names of rxd_plugin.h are seen outside, so
# that it shares no runtime with rxd or with another plugin.
FLAGS := --no-color-diagnostics -c release -Xswiftc -static-stdlib -Xlinker -Bsymbolic -Xlinker --exclude-libs=ALL
