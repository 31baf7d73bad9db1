/* Avro schemas, and conversion between Avro data and values of rxd. */
#ifndef AVRO_FORMAT_H
#define AVRO_FORMAT_H
#include "format_util.h"

typedef enum {
  AVRO_NULL, AVRO_BOOLEAN, AVRO_INT, AVRO_LONG, AVRO_FLOAT, AVRO_DOUBLE, AVRO_BYTES, AVRO_STRING, AVRO_RECORD, AVRO_ENUM, AVRO_ARRAY, AVRO_MAP,
  AVRO_UNION, AVRO_FIXED
} avro_type;

typedef enum {
  LOGICAL_NONE, LOGICAL_DATE, LOGICAL_TIME_MILLIS, LOGICAL_TIME_MICROS, LOGICAL_MILLIS, LOGICAL_MICROS, LOGICAL_NANOS, LOGICAL_LOCAL_MILLIS,
  LOGICAL_LOCAL_MICROS, LOGICAL_LOCAL_NANOS, LOGICAL_DECIMAL, LOGICAL_UUID, LOGICAL_DURATION
} logical_type;

/* ---- Memory that is freed as a whole ---- */

typedef struct arena {
  struct block *blocks;
} arena;

void *arena_take(arena *arena, size_t count);
rxd_text arena_text(arena *arena, rxd_text text);
void arena_free(arena *arena);

/* ---- Schemas ---- */

typedef struct node node;

typedef struct {
  rxd_text name;
  const rxd_text *aliases;
  size_t alias_count;
  const node *type;
  bool has_default;
  rxd_text otherwise; /* the encoded default */
} record_field;

struct node {
  avro_type type;
  logical_type logical;
  uint32_t precision, scale; /* for a decimal */
  rxd_text name;             /* full name of a record, an enum or a fixed */
  const rxd_text *aliases;   /* full names */
  size_t alias_count;
  size_t count;              /* number of fields, symbols or branches */
  record_field *fields;
  const rxd_text *symbols;
  int64_t default_symbol;    /* -1: none */
  const node **branches;
  const node *items;         /* for an array or a map */
  size_t size;               /* bytes of a fixed */
};

typedef struct {
  arena arena;
  const node *root;
  uint64_t fingerprint; /* CRC-64-AVRO of the canonical form */
} avro_schema;

/* NULL: `fail` was called. */
avro_schema *parse_schema(rxd_scope *scope, const rxd_value *json, const char *at);
avro_schema *parse_schema_text(rxd_scope *scope, rxd_text json, const char *at);
void free_schema(avro_schema *schema);
const char *type_name(avro_type type);
uint64_t rabin(const char *bytes, size_t count);

/* ---- Resolution: how bytes of a writer's schema become values of the reader's ---- */

typedef struct plan plan;

typedef struct {
  const plan *plan; /* NULL: the value is skipped */
  const node *skipped;
  uint32_t index;   /* index of the reader's field */
} plan_step;

struct plan {
  const node *writer, *reader; /* the reader is a union only if the writer is one */
  const char *problem;         /* why values of this type cannot be read */
  const plan **children;       /* one for each branch, or one for the items */
  const plan_step *steps;      /* for a record: one for each of the writer's fields */
  size_t default_count;
  const plan_step *defaults;   /* for the reader's fields that the writer lacks */
  const int32_t *symbols;      /* the reader's symbol for each of the writer's; -1: none */
};

/* The plan is allocated in `arena`. */
const plan *make_plan(arena *arena, const node *writer, const node *reader);

/* ---- Bytes ---- */

/* The path of a value, for messages. */
typedef struct place {
  const struct place *up;
  rxd_text name;
  size_t index;
  bool has_index;
} place;

void put_place(const place *place, char *text, size_t capacity);

typedef struct {
  rxd_scope *scope;
  const char *begin, *at, *end;
  const char *what;    /* "block 3: " or "" */
  size_t values_left;  /* limit for values that take no bytes in the input */
  value_stack stack;
} avro_reader;

#define VALUES_OF(bytes) (65536 + 16 * (bytes))

bool read_value(avro_reader *reader, const plan *plan, rxd_value *value);
bool read_long(avro_reader *reader, const place *place, int64_t *number);
/* Reads bytes with their length prefix. */
bool read_bytes(avro_reader *reader, const place *place, rxd_text *bytes);
__attribute__((format(printf, 3, 4)))
bool refuse_input(avro_reader *reader, const place *place, const char *format, ...);

/* `is_default`: the value is a default in a schema, where bytes are texts and logical types are ignored. */
bool write_value(rxd_scope *scope, const node *node, const rxd_value *value, bool ignores_unknown, bool is_default, output_bytes *output);

/* ---- Containers and registries ---- */

/* Decodes an object container file. `reader_schema`: NULL for the writer's schema. */
int decode_container(rxd_scope *scope, const avro_schema *reader_schema, rxd_text input, uint64_t limit, rxd_value *events);

typedef struct registry registry;

typedef struct {
  const char *url, *user, *password, *ca_file; /* NULL: none; the URL has no trailing slash */
  int64_t timeout_ms;
} registry_settings;

registry *open_registry(const registry_settings *settings, const avro_schema *reader_schema);
void close_registry(registry *registry);
/* Returns the plan for data written with a schema of the registry, which is asked once for each id. NULL: `fail` was
 * called. */
const plan *registry_plan(registry *registry, rxd_scope *scope, uint32_t id);
/* The newest schema of a subject, as JSON, which the caller frees; NULL: `problem`. */
char *newest_schema(const registry_settings *settings, const char *subject, char *problem, size_t capacity);
#endif
