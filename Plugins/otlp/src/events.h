/* Converts requests to events: one for each log record, span and data point. */
#ifndef OTLP_EVENTS_H
#define OTLP_EVENTS_H
#include "common.h"

#include <functional>

/* The maximum number of events between two calls of `flush`. */
enum { CHUNK_MOST = 1000 };

struct Taken {
  bool is_malformed = false; /* nothing was added */
  bool is_stopped = false;   /* rxd accepts no more events; the last ones were not added */
  size_t added = 0;          /* events added, with consecutive tokens */
  size_t rejected = 0;       /* records that cannot be events */
  std::string reason;        /* why the first one was rejected, or why the request is malformed */
};

/* Adds the events of a request and flushes them. `begin` gets the number of records before the first is added, and
 * returns the token of the first event; `between` is called after each flush. */
Taken add_events(rxd_source *running, std::string_view request, Signal signal, const std::function<uint64_t(size_t)> &begin,
                 const std::function<void()> &between);

#endif
