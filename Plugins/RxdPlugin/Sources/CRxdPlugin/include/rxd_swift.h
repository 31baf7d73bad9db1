/* The C part of RxdPlugin: the table of rxd's functions, and the call that each thread is in. */
#ifndef RXD_SWIFT_H
#define RXD_SWIFT_H
#include "rxd_plugin.h"

/* Set once, before any other call; read by all threads. */
extern rxd_host rxd_swift_host_table;

static inline const rxd_host *rxd_swift_host(void) { return &rxd_swift_host_table; }

static inline void rxd_swift_set_host(const rxd_host *host) { rxd_swift_host_table = *host; }

/* The maximum number of threads that own a slot at the same time. */
#define RXD_SWIFT_SLOTS 64

/* Begins a call with this scope. Returns the slot that the calling thread owns exclusively, or RXD_SWIFT_SLOTS if all are in use. */
int rxd_swift_enter(rxd_scope *scope);

/* The scope of the call that this thread is in. */
rxd_scope *rxd_swift_scope(void);

#endif
