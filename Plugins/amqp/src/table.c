#include "table.h"

#include <amqp_framing.h>

/* ---- Checking ---- */

typedef struct reader {
  const uint8_t *at, *end;
} reader;

static bool skip(reader *reader, size_t count) {
  if ((size_t)(reader->end - reader->at) < count) return false;
  reader->at += count;
  return true;
}

static bool read_size(reader *reader, size_t *size) {
  const uint8_t *at = reader->at;
  if (!skip(reader, 4)) return false;
  *size = (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];
  return *size <= (size_t)(reader->end - reader->at);
}

static bool skip_short(reader *reader) { return reader->at < reader->end && skip(reader, (size_t)*reader->at + 1); }

static bool skip_items(reader *reader, bool has_names, int depth);

static bool skip_value(reader *reader, int depth) {
  const uint8_t *kind = reader->at;
  size_t size;
  if (!skip(reader, 1)) return false;
  switch (*kind) {
    case AMQP_FIELD_KIND_VOID: return true;
    case AMQP_FIELD_KIND_BOOLEAN:
    case AMQP_FIELD_KIND_I8:
    case AMQP_FIELD_KIND_U8: return skip(reader, 1);
    case AMQP_FIELD_KIND_I16:
    case AMQP_FIELD_KIND_U16: return skip(reader, 2);
    case AMQP_FIELD_KIND_I32:
    case AMQP_FIELD_KIND_U32:
    case AMQP_FIELD_KIND_F32: return skip(reader, 4);
    case AMQP_FIELD_KIND_I64:
    case AMQP_FIELD_KIND_U64:
    case AMQP_FIELD_KIND_F64:
    case AMQP_FIELD_KIND_TIMESTAMP: return skip(reader, 8);
    case AMQP_FIELD_KIND_DECIMAL: return skip(reader, 5);
    case AMQP_FIELD_KIND_UTF8:
    case AMQP_FIELD_KIND_BYTES: return read_size(reader, &size) && skip(reader, size);
    case AMQP_FIELD_KIND_TABLE: return skip_items(reader, true, depth + 1);
    case AMQP_FIELD_KIND_ARRAY: return skip_items(reader, false, depth + 1);
    default: return false;
  }
}

/* Skips a table or an array; its items must end where it ends. */
static bool skip_items(reader *outer, bool has_names, int depth) {
  size_t size;
  if (depth > DEPTH_MOST || !read_size(outer, &size)) return false;
  reader reader = {outer->at, outer->at + size};
  while (reader.at < reader.end)
    if ((has_names && !skip_short(&reader)) || !skip_value(&reader, depth)) return false;
  outer->at = reader.end;
  return true;
}

bool is_sound(const uint8_t *properties, size_t count) {
  reader reader = {properties, properties + count};
  if (!skip(&reader, 2)) return false;
  amqp_flags_t flags = (amqp_flags_t)(properties[0] << 8 | properties[1]);
  if (flags & 1) return false; /* further flags, which no message property has */
  if ((flags & AMQP_BASIC_CONTENT_TYPE_FLAG) != 0 && !skip_short(&reader)) return false;
  if ((flags & AMQP_BASIC_CONTENT_ENCODING_FLAG) != 0 && !skip_short(&reader)) return false;
  return (flags & AMQP_BASIC_HEADERS_FLAG) == 0 || skip_items(&reader, true, 1);
}

/* ---- Reading ---- */

static rxd_value value_of_field(rxd_scope *scope, const amqp_field_value_t *field);

static rxd_value list_value(rxd_scope *scope, const amqp_array_t *array) {
  size_t count = (size_t)array->num_entries;
  rxd_value *elements = need(calloc(count + 1, sizeof *elements));
  for (size_t i = 0; i < count; i++) elements[i] = value_of_field(scope, &array->entries[i]);
  rxd_value list = host->make_list(scope, elements, count);
  free(elements);
  return list;
}

rxd_value time_value(uint64_t seconds) {
  if (seconds <= INT64_MAX / 1000000000) return host->make_timestamp((int64_t)seconds * 1000000000);
  return seconds <= INT64_MAX ? host->make_int((int64_t)seconds) : host->make_double((double)seconds);
}

static rxd_value unsigned_value(rxd_scope *scope, uint64_t number) {
  if (number <= INT64_MAX) return host->make_int((int64_t)number);
  char digits[24];
  rxd_value value;
  int count = snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
  if (host->parse_json(scope, (rxd_text){digits, (size_t)count}, &value) == RXD_OK) return value;
  return host->make_double((double)number);
}

/* A text of digits, because a number would lose precision. */
static rxd_value decimal_value(rxd_scope *scope, amqp_decimal_t decimal) {
  char digits[300], text[304];
  int count = snprintf(digits, sizeof digits, "%0*u", decimal.decimals + 1, decimal.value);
  int whole = count - decimal.decimals;
  count = decimal.decimals == 0 ? snprintf(text, sizeof text, "%s", digits)
                                : snprintf(text, sizeof text, "%.*s.%s", whole, digits, digits + whole);
  return host->make_text(scope, (rxd_text){text, (size_t)count});
}

static rxd_value value_of_field(rxd_scope *scope, const amqp_field_value_t *field) {
  switch (field->kind) {
    case AMQP_FIELD_KIND_BOOLEAN: return host->make_bool(field->value.boolean != 0);
    case AMQP_FIELD_KIND_I8: return host->make_int(field->value.i8);
    case AMQP_FIELD_KIND_U8: return host->make_int(field->value.u8);
    case AMQP_FIELD_KIND_I16: return host->make_int(field->value.i16);
    case AMQP_FIELD_KIND_U16: return host->make_int(field->value.u16);
    case AMQP_FIELD_KIND_I32: return host->make_int(field->value.i32);
    case AMQP_FIELD_KIND_U32: return host->make_int(field->value.u32);
    case AMQP_FIELD_KIND_I64: return host->make_int(field->value.i64);
    case AMQP_FIELD_KIND_U64: return unsigned_value(scope, field->value.u64);
    case AMQP_FIELD_KIND_F32: return host->make_double((double)field->value.f32);
    case AMQP_FIELD_KIND_F64: return host->make_double(field->value.f64);
    case AMQP_FIELD_KIND_DECIMAL: return decimal_value(scope, field->value.decimal);
    case AMQP_FIELD_KIND_TIMESTAMP: return time_value(field->value.u64);
    case AMQP_FIELD_KIND_UTF8:
      return value_of_bytes(scope, field->value.bytes.len > 0 ? field->value.bytes.bytes : "", field->value.bytes.len);
    case AMQP_FIELD_KIND_BYTES:
      return host->make_bytes(scope, (rxd_text){field->value.bytes.len > 0 ? field->value.bytes.bytes : "",
                                                field->value.bytes.len});
    case AMQP_FIELD_KIND_TABLE: return table_value(scope, &field->value.table);
    case AMQP_FIELD_KIND_ARRAY: return list_value(scope, &field->value.array);
    default: return host->make_null();
  }
}

typedef struct member {
  rxd_text name;
  size_t index;
} member;

static int compare_members(const void *one, const void *other) {
  const member *a = one, *b = other;
  size_t least = a->name.count < b->name.count ? a->name.count : b->name.count;
  int order = least > 0 ? memcmp(a->name.bytes, b->name.bytes, least) : 0;
  if (order != 0) return order;
  if (a->name.count != b->name.count) return a->name.count < b->name.count ? -1 : 1;
  return a->index < b->index ? -1 : 1;
}

static int compare_places(const void *one, const void *other) {
  const member *a = one, *b = other;
  return a->index < b->index ? -1 : 1;
}

/* An object has each name once: of repeated members, the last one wins. Keeps the order of the table. */
static size_t drop_repeated(member *members, size_t count) {
  if (count < 2) return count;
  size_t kept = 0;
  qsort(members, count, sizeof *members, compare_members);
  for (size_t i = 0; i < count; i++)
    if (i + 1 == count || !text_is(members[i].name, members[i + 1].name)) members[kept++] = members[i];
  qsort(members, kept, sizeof *members, compare_places);
  return kept;
}

rxd_value table_value(rxd_scope *scope, const amqp_table_t *table) {
  size_t count = (size_t)table->num_entries;
  member *members = need(calloc(count + 1, sizeof *members));
  rxd_text *names = need(calloc(count + 1, sizeof *names));
  rxd_value *values = need(calloc(count + 1, sizeof *values));
  rxd_value *made = need(calloc(count + 1, sizeof *made)); /* invalid UTF-8 in names is replaced */
  for (size_t i = 0; i < count; i++) {
    const amqp_bytes_t *key = &table->entries[i].key;
    made[i] = host->make_text(scope, (rxd_text){key->len > 0 ? key->bytes : "", key->len});
    members[i] = (member){host->text(scope, &made[i]), i};
  }
  count = drop_repeated(members, count);
  for (size_t i = 0; i < count; i++) {
    names[i] = members[i].name;
    values[i] = value_of_field(scope, &table->entries[members[i].index].value);
  }
  rxd_value object = host->make_object(scope, names, values, count);
  free(members);
  free(names);
  free(values);
  free(made);
  return object;
}

/* ---- Writing ---- */

static const char *make_entries(rxd_scope *scope, amqp_pool_t *pool, const rxd_value *object, amqp_table_t *table,
                                int depth);

static void *take(amqp_pool_t *pool, size_t count) {
  void *memory = need(amqp_pool_alloc(pool, count > 0 ? count : 1));
  memset(memory, 0, count);
  return memory;
}

static const char *make_field(rxd_scope *scope, amqp_pool_t *pool, const rxd_value *value, amqp_field_value_t *field,
                              int depth) {
  rxd_text text;
  switch (host->kind(value)) {
    case RXD_NULL: field->kind = AMQP_FIELD_KIND_VOID; return NULL;
    case RXD_BOOL:
      field->kind = AMQP_FIELD_KIND_BOOLEAN;
      field->value.boolean = host->boolean(value);
      return NULL;
    case RXD_INT:
      field->kind = AMQP_FIELD_KIND_I64;
      field->value.i64 = host->integer(value);
      return NULL;
    case RXD_UINT:
    case RXD_DOUBLE:
      field->kind = AMQP_FIELD_KIND_F64;
      field->value.f64 = host->number(value);
      return NULL;
    case RXD_TIMESTAMP:
      if (host->integer(value) < 0) break;
      field->kind = AMQP_FIELD_KIND_TIMESTAMP;
      field->value.u64 = (uint64_t)host->integer(value) / 1000000000;
      return NULL;
    case RXD_BYTES:
      text = host->text(scope, value);
      field->kind = AMQP_FIELD_KIND_BYTES;
      field->value.bytes = (amqp_bytes_t){text.count, (void *)(uintptr_t)text.bytes};
      return NULL;
    case RXD_OBJECT:
      field->kind = AMQP_FIELD_KIND_TABLE;
      return make_entries(scope, pool, value, &field->value.table, depth + 1);
    case RXD_LIST: {
      if (depth >= DEPTH_MOST) return "nesting that is too deep";
      size_t count = host->count(scope, value);
      field->kind = AMQP_FIELD_KIND_ARRAY;
      field->value.array = (amqp_array_t){(int)count, take(pool, count * sizeof(amqp_field_value_t))};
      for (size_t i = 0; i < count; i++) {
        rxd_value element = host->element(scope, value, i);
        const char *problem = make_field(scope, pool, &element, &field->value.array.entries[i], depth + 1);
        if (problem != NULL) return problem;
      }
      return NULL;
    }
    default: break;
  }
  text = bytes_of_value(scope, value);
  field->kind = AMQP_FIELD_KIND_UTF8;
  field->value.bytes = (amqp_bytes_t){text.count, (void *)(uintptr_t)text.bytes};
  return NULL;
}

static const char *make_entries(rxd_scope *scope, amqp_pool_t *pool, const rxd_value *object, amqp_table_t *table,
                                int depth) {
  if (depth > DEPTH_MOST) return "nesting that is too deep";
  size_t count = host->count(scope, object);
  *table = (amqp_table_t){(int)count, take(pool, count * sizeof(amqp_table_entry_t))};
  for (size_t i = 0; i < count; i++) {
    rxd_text name;
    rxd_value value = host->entry(scope, object, i, &name);
    if (name.count > 255) return "a name of more than 255 bytes";
    table->entries[i].key = (amqp_bytes_t){name.count, (void *)(uintptr_t)name.bytes};
    const char *problem = make_field(scope, pool, &value, &table->entries[i].value, depth);
    if (problem != NULL) return problem;
  }
  return NULL;
}

const char *make_table(rxd_scope *scope, amqp_pool_t *pool, const rxd_value *object, amqp_table_t *table) {
  return make_entries(scope, pool, object, table, 1);
}
