/* What RxdPlugin has in C: the table of rxd's functions, and what a thread is doing. */
#ifndef RXD_SWIFT_H
#define RXD_SWIFT_H
#include "rxd_plugin.h"

/* Set once, before everything else; read by all threads. */
extern rxd_host rxd_swift_host_table;

static inline const rxd_host *rxd_swift_host(void) { return &rxd_swift_host_table; }

static inline void rxd_swift_set_host(const rxd_host *host) { rxd_swift_host_table = *host; }

/* So many threads at a time have a place of their own. */
#define RXD_SWIFT_PLACES 64

/* A call begins, with this scope. Returns the place of the thread, which no other running thread has; RXD_SWIFT_PLACES: it has none. */
int rxd_swift_enter(rxd_scope *scope);

/* The scope of the call that this thread is in. */
rxd_scope *rxd_swift_scope(void);

#endif
