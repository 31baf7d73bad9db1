/* Databases in MaxMind's format, shared by all users of a path, and read again when their files are replaced. */
#ifndef GEOIP_H
#define GEOIP_H
#include <maxminddb.h>
#include <stdatomic.h>

#include "format_util.h"

typedef struct database database;

/* Finds or opens the database. NULL: `problem` has the reason. Each call must be paired with `database_close`. */
database *database_open(const char *path, char *problem, size_t capacity);
void database_close(database *self);
const char *database_path(const database *self);

/* Whether a replaced file has been refused since `*seen`, which is 0 at first; `problem` is then the reason of the last one. Of several threads with one
 * `seen`, one gets it. */
bool database_problem(database *self, atomic_uint *seen, char *problem, size_t capacity);

/* Looks up the address and passes its entry to `use` while the database stays open. Returns the status of `use`; RXD_OK
 * without a call if the database lacks the address. */
typedef int use_entry(void *closure, MMDB_entry_s *entry);
int database_find(database *self, const struct sockaddr *address, use_entry *use, void *closure, bool *is_found, char *problem, size_t capacity);
#endif
