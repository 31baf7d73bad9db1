/* Tables of AMQP, such as headers and arguments, as values of events and back. */
#ifndef TABLE_H
#define TABLE_H
#include <amqp.h>
#include <plugin_util.h>

/* Levels of tables in tables that are read or written. */
enum { DEPTH_MOST = 32 };

/* Whether the encoded properties of a message are well formed, with tables at most DEPTH_MOST deep. librabbitmq follows
 * tables in tables without an end, so this comes before it. */
bool is_sound(const uint8_t *properties, size_t count);
rxd_value table_value(rxd_scope *scope, const amqp_table_t *table);
/* AMQP has seconds; a time that rxd cannot hold stays a number. */
rxd_value time_value(uint64_t seconds);
/* The members of an object, in memory of the pool. NULL, or what cannot be written, for `problem`: "nesting that is too
 * deep". */
const char *make_table(rxd_scope *scope, amqp_pool_t *pool, const rxd_value *object, amqp_table_t *table);

#endif
