/* Converts AMQP tables, such as headers and arguments, to values of events and back. */
#ifndef TABLE_H
#define TABLE_H
#include <amqp.h>
#include <plugin_util.h>

/* The maximum nesting of tables that are read or written. */
enum { DEPTH_MOST = 32 };

/* Whether the encoded properties of a message are well formed, with tables nested at most DEPTH_MOST deep. Must be
 * checked first: librabbitmq's recursion has no limit. */
bool is_sound(const uint8_t *properties, size_t count);
rxd_value table_value(rxd_scope *scope, const amqp_table_t *table);
/* AMQP counts seconds; a time out of rxd's range stays a number. */
rxd_value time_value(uint64_t seconds);
/* Makes a table of an object's members, in memory of the pool. Returns NULL, or why it cannot be written, for
 * `problem`: "nesting that is too deep". */
const char *make_table(rxd_scope *scope, amqp_pool_t *pool, const rxd_value *object, amqp_table_t *table);

#endif
