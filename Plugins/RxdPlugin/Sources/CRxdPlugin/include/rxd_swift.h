/* What RxdPlugin has in C: the table of rxd's functions, and what a thread is doing. */
#ifndef RXD_SWIFT_H
#define RXD_SWIFT_H
#include "rxd_plugin.h"

/* Set once, before everything else; read by all threads. */
extern rxd_host rxd_swift_host_table;

static inline const rxd_host *rxd_swift_host(void) { return &rxd_swift_host_table; }

static inline void rxd_swift_set_host(const rxd_host *host) { rxd_swift_host_table = *host; }

/* The number of threads that have a slot of their own at the same time. */
#define RXD_SWIFT_SLOTS 64

/* A call begins, with this scope. Returns the slot of the thread, which no other running thread has; RXD_SWIFT_SLOTS: it has none. */
int rxd_swift_enter(rxd_scope *scope);

/* The scope of the call that this thread is in. */
rxd_scope *rxd_swift_scope(void);

#endif
