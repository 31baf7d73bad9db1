/* Converts MessagePack to values, with the parser template in the headers of msgpack-c. The library's own objects
 * allocate as much as the input claims, and are limited to 32 levels. */
#define MSGPACK_EMBED_STACK_SIZE DEPTH_LIMIT
#include "msgpack_format.h"
#include <msgpack/unpack.h>
#include <msgpack/unpack_define.h>

typedef enum { FORM_VALUE, FORM_TEXT, FORM_INTEGER, FORM_UNSIGNED, FORM_BOOL, FORM_LIST, FORM_OBJECT } form;

/* A value that the parser has read, or a list or object that it is reading. A text becomes a value once it is known not
 * to be a key. */
typedef struct {
  form form;
  uint32_t left;  /* remaining members of a list or an object */
  union {
    rxd_value value;
    rxd_text text;
    int64_t integer;
    uint64_t number;
    size_t start; /* index of its first member on the stack */
  };
} item;

typedef struct {
  rxd_scope *scope;
  const reading *how;
  const char *begin, *end;
  value_stack *stack;
  char *names;  /* texts of numeric keys, linked by their first bytes */
  const char *bad_key;  /* the kind of a key that is not a text */
  char repeated[24];    /* a repeated key that is not a text in the input */
  bool has_failed;
} reader;

__attribute__((format(printf, 2, 3)))
static int refuse(reader *reader, const char *format, ...) {
  char message[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  host->fail(reader->scope, text_of(message), text_of(""));
  reader->has_failed = true;
  return -1;
}

static size_t offset_of(const reader *reader, const char *at) { return (size_t)(at - reader->begin); }

/* ---- Callbacks of the parser ---- */

/* Their names are given by the parser. Each returns 0, or -1 after an error. */
#define msgpack_unpack_struct(name) struct reading##name
#define msgpack_unpack_func(ret, name) static ret reading##name
#define msgpack_unpack_callback(name) on##name
#define msgpack_unpack_object item
#define msgpack_unpack_user reader
struct reading_context;
static void reading_init(struct reading_context *context);
static item reading_data(struct reading_context *context) UNUSED;
static int reading_execute(struct reading_context *context, const char *data, size_t count, size_t *offset);

static item on_root(reader *reader) {
  (void)reader;
  return (item){.form = FORM_VALUE, .value = host->make_null()};
}

static int on_integer(item *to, int64_t integer) {
  *to = (item){.form = FORM_INTEGER, .integer = integer};
  return 0;
}
static int on_uint8(reader *reader, uint8_t number, item *to) { (void)reader; return on_integer(to, number); }
static int on_uint16(reader *reader, uint16_t number, item *to) { (void)reader; return on_integer(to, number); }
static int on_uint32(reader *reader, uint32_t number, item *to) { (void)reader; return on_integer(to, number); }
static int on_int8(reader *reader, int8_t number, item *to) { (void)reader; return on_integer(to, number); }
static int on_int16(reader *reader, int16_t number, item *to) { (void)reader; return on_integer(to, number); }
static int on_int32(reader *reader, int32_t number, item *to) { (void)reader; return on_integer(to, number); }
static int on_int64(reader *reader, int64_t number, item *to) { (void)reader; return on_integer(to, number); }
static int on_uint64(reader *reader, uint64_t number, item *to) {
  (void)reader;
  if (number <= INT64_MAX) return on_integer(to, (int64_t)number);
  *to = (item){.form = FORM_UNSIGNED, .number = number};
  return 0;
}

static int on_value(item *to, rxd_value value) {
  *to = (item){.form = FORM_VALUE, .value = value};
  return 0;
}
static int on_float(reader *reader, float number, item *to) { (void)reader; return on_value(to, host->make_double((double)number)); }
static int on_double(reader *reader, double number, item *to) { (void)reader; return on_value(to, host->make_double(number)); }
static int on_nil(reader *reader, item *to) { (void)reader; return on_value(to, host->make_null()); }
static int on_bool(item *to, int value) {
  *to = (item){.form = FORM_BOOL, .integer = value};
  return 0;
}
static int on_true(reader *reader, item *to) { (void)reader; return on_bool(to, 1); }
static int on_false(reader *reader, item *to) { (void)reader; return on_bool(to, 0); }

static int on_str(reader *reader, const char *data, const char *at, unsigned int count, item *to) {
  (void)data;
  if (count == 0) at = ""; /* the parser gives no position for an empty text */
  if (is_utf8(at, count)) *to = (item){.form = FORM_TEXT, .text = {at, count}};
  else if (reader->how->keeps_bytes) return on_value(to, host->make_bytes(reader->scope, (rxd_text){at, count}));
  else return refuse(reader, "the string at byte %zu is not UTF-8", offset_of(reader, at));
  return 0;
}

static int on_bin(reader *reader, const char *data, const char *at, unsigned int count, item *to) {
  (void)data;
  return on_value(to, host->make_bytes(reader->scope, (rxd_text){count == 0 ? "" : at, count}));
}

static uint64_t number_at(const char *at, int count) {
  uint64_t number = 0;
  for (int i = 0; i < count; i++) number = number << 8 | (unsigned char)at[i];
  return number;
}

/* A time: seconds in 32 bits, or nanoseconds and seconds in 30 and 34 bits, or in 32 and 64 bits. */
static int on_time(reader *reader, const char *at, size_t count, item *to) {
  size_t offset = offset_of(reader, at);
  int64_t seconds;
  uint64_t nanoseconds = 0;
  switch (count) {
    case 4: seconds = (int64_t)number_at(at, 4); break;
    case 8:
      seconds = (int64_t)(number_at(at, 8) & 0x3ffffffff);
      nanoseconds = number_at(at, 8) >> 34;
      break;
    case 12:
      nanoseconds = number_at(at, 4);
      seconds = (int64_t)number_at(at + 4, 8);
      break;
    default: return refuse(reader, "the time at byte %zu has %zu bytes; a time has 4, 8 or 12", offset, count);
  }
  if (nanoseconds > 999999999)
    return refuse(reader, "the time at byte %zu has %llu nanoseconds; a second has 1000000000", offset, (unsigned long long)nanoseconds);
  rxd_value value;
  if (!make_time(seconds, (uint32_t)nanoseconds, &value)) return refuse(reader, "the time at byte %zu " TIMES_ARE_FROM_TO, offset);
  return on_value(to, value);
}

/* `count` includes the type byte; it is 0 if the claimed length plus this byte exceeds 32 bits. */
static int on_ext(reader *reader, const char *data, const char *at, unsigned int count, item *to) {
  (void)data;
  if (count == 0) return refuse(reader, "the extension at byte %zu has more bytes than the input", offset_of(reader, at));
  int type = (signed char)*at;
  if (type == -1) return on_time(reader, at + 1, count - 1, to);
  const rxd_text names[] = {RXD_TEXT_OF("ext"), RXD_TEXT_OF("data")};
  const rxd_value values[] = {host->make_int(type), host->make_bytes(reader->scope, (rxd_text){at + 1, count - 1})};
  return on_value(to, host->make_object(reader->scope, names, values, 2));
}

static rxd_value finished(reader *reader, const item *item) {
  switch (item->form) {
    case FORM_TEXT: return host->make_text(reader->scope, item->text);
    case FORM_INTEGER: return host->make_int(item->integer);
    case FORM_UNSIGNED: return host->make_uint(item->number);
    case FORM_BOOL: return host->make_bool((int)item->integer);
    default: return item->value;
  }
}

static int on_array(reader *reader, unsigned int count, item *to) {
  if (count == 0) return on_value(to, host->make_list(reader->scope, NULL, 0));
  *to = (item){.form = FORM_LIST, .left = count, .start = reader->stack->count};
  return 0;
}

static int on_array_item(reader *reader, item *list, item member) {
  push_value(reader->stack, finished(reader, &member));
  if (--list->left == 0) on_value(list, pop_list(reader->scope, reader->stack, list->start));
  return 0;
}

static int on_map(reader *reader, unsigned int count, item *to) {
  if (count == 0) return on_value(to, pop_object(reader->scope, reader->stack, reader->stack->count));
  *to = (item){.form = FORM_OBJECT, .left = count, .start = reader->stack->count};
  return 0;
}

/* Stores the text of a key until the value is complete. */
static rxd_text keep_name(reader *reader, const char *text) {
  size_t count = strlen(text);
  char *block = need(malloc(sizeof(char *) + count + 1));
  memcpy(block, &reader->names, sizeof(char *));
  memcpy(block + sizeof(char *), text, count + 1);
  reader->names = block;
  return (rxd_text){block + sizeof(char *), count};
}

static const char *kind_name(int kind) {
  switch (kind) {
    case RXD_NULL: return "null";
    case RXD_DOUBLE: return "a number with a fraction";
    case RXD_BYTES: return "bytes";
    case RXD_LIST: return "a list";
    case RXD_OBJECT: return "a map or an extension";
    default: return "a time";
  }
}

static int on_map_item(reader *reader, item *object, item key, item value) {
  rxd_text name;
  char digits[32];
  switch (key.form) {
    case FORM_TEXT: name = key.text; break;
    case FORM_INTEGER:
      snprintf(digits, sizeof digits, "%lld", (long long)key.integer);
      name = keep_name(reader, digits);
      break;
    case FORM_UNSIGNED:
      snprintf(digits, sizeof digits, "%llu", (unsigned long long)key.number);
      name = keep_name(reader, digits);
      break;
    case FORM_BOOL: name = keep_name(reader, key.integer ? "true" : "false"); break;
    default: reader->bad_key = kind_name(host->kind(&key.value)); return -1;
  }
  push_member(reader->stack, name, finished(reader, &value));
  if (--object->left > 0) return 0;
  size_t count = reader->stack->count - object->start;
  rxd_text twice;
  if (repeated_name(reader->stack->names + object->start, count, &twice) != NULL) {
    if (twice.bytes >= reader->begin && twice.bytes < reader->end)
      return refuse(reader, "a map has the key '%.*s' twice, again at byte %zu", shown_count(twice), twice.bytes, offset_of(reader, twice.bytes));
    snprintf(reader->repeated, sizeof reader->repeated, "%.*s", shown_count(twice), twice.bytes);
    return -1;
  }
  return on_value(object, pop_object(reader->scope, reader->stack, object->start));
}

#include <msgpack/unpack_template.h>

static const reading defaults;

int decode_value(rxd_scope *scope, const void *how, rxd_text input, size_t *offset, value_stack *stack, rxd_value *value) {
  struct reading_context context;
  context.user = (reader){.scope = scope, .how = how != NULL ? how : &defaults, .stack = stack, .begin = input.bytes, .end = input.bytes + input.count};
  reading_init(&context);
  reader *reader = &context.user;
  size_t start = *offset;
  int result = reading_execute(&context, input.bytes, input.count, offset);
  if (result == 1) {
    item made = reading_data(&context);
    *value = finished(reader, &made);
  } else if (result == 0) {
    refuse(reader, "the value at byte %zu is not complete: the input ends at byte %zu", start, input.count);
  } else if (result == MSGPACK_UNPACK_NOMEM_ERROR) {
    refuse(reader, "the list or map at byte %zu is nested more deeply than %d levels", *offset, DEPTH_LIMIT);
  } else if (reader->bad_key != NULL) {
    refuse(reader, "the member of a map that ends at byte %zu has a key that is %s; keys are texts, whole numbers or booleans",
           *offset, reader->bad_key);
  } else if (reader->repeated[0] != 0) {
    refuse(reader, "the map that ends at byte %zu has the key '%s' twice", *offset, reader->repeated);
  } else if (!reader->has_failed) {
    refuse(reader, "byte %zu is 0x%02x, with which no value begins", *offset, (unsigned char)input.bytes[*offset]);
  }
  stack->count = 0;
  while (reader->names != NULL) {
    char *next;
    memcpy(&next, reader->names, sizeof next);
    free(reader->names);
    reader->names = next;
  }
  return result == 1 ? RXD_OK : RXD_FAILED;
}
