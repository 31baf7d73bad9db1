/* Converts CBOR to values, with the streaming decoder of libcbor, which allocates nothing. The library's `cbor_load`
 * allocates as much as the input claims. */
#include <cbor.h>
#include <math.h>

#include "format_value.h"

/* The maximum length of an integer beyond 64 bits: converting it to decimal takes quadratic time. */
#define LONGEST_INTEGER 128

typedef enum { FORM_VALUE, FORM_TEXT, FORM_BYTES, FORM_INTEGER, FORM_UNSIGNED, FORM_DIGITS, FORM_DOUBLE, FORM_BOOL, FORM_NULL } form;

/* A value that has been read. Texts and bytes become values once they are known to be neither keys nor tagged. */
typedef struct {
  form form;
  union {
    rxd_value value;
    rxd_text text; /* also of FORM_BYTES, and the decimal digits of an integer beyond 64 bits */
    int64_t integer;
    uint64_t number;
    double fraction;
  };
} item;

typedef enum { IN_LIST, IN_OBJECT, IN_TAG, IN_TEXT, IN_BYTES } part;

/* A list, map, tag or chunked string that is being read. */
typedef struct {
  part part;
  bool is_indefinite, has_name;
  uint64_t left; /* remaining members, or the number of a tag */
  size_t start;  /* index of its first member on the stack; of a string: of its first byte in `chunks` */
  size_t offset; /* offset of its first byte */
  rxd_text name; /* name of the member whose value follows */
} level;

/* Memory that is needed until the value is complete. */
typedef struct block {
  struct block *next;
  char bytes[];
} block;

typedef struct {
  rxd_scope *scope;
  const char *begin, *end;
  size_t offset; /* offset of the first byte of the current item */
  value_stack *stack;
  output_bytes chunks;
  block *blocks;
  item result;
  bool is_complete, has_failed;
  int depth;
  level levels[DEPTH_LIMIT];
} reader;

__attribute__((format(printf, 2, 3)))
static void refuse(reader *reader, const char *format, ...) {
  if (reader->has_failed) return;
  char message[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  host->fail(reader->scope, text_of(message), text_of(""));
  reader->has_failed = true;
}

static rxd_text keep(reader *reader, const char *bytes, size_t count) {
  block *made = need(malloc(sizeof(block) + count + 1));
  made->next = reader->blocks;
  reader->blocks = made;
  if (count > 0) memcpy(made->bytes, bytes, count);
  return (rxd_text){made->bytes, count};
}

static rxd_text keep_number(reader *reader, const item *item) {
  char digits[32];
  int count = item->form == FORM_INTEGER ? snprintf(digits, sizeof digits, "%lld", (long long)item->integer)
                                         : snprintf(digits, sizeof digits, "%llu", (unsigned long long)item->number);
  return keep(reader, digits, (size_t)count);
}

static rxd_value finished(reader *reader, const item *item) {
  switch (item->form) {
    case FORM_TEXT: case FORM_DIGITS: return host->make_text(reader->scope, item->text);
    case FORM_BYTES: return host->make_bytes(reader->scope, item->text);
    case FORM_INTEGER: return host->make_int(item->integer);
    case FORM_UNSIGNED: return host->make_uint(item->number);
    case FORM_DOUBLE: return host->make_double(item->fraction);
    case FORM_BOOL: return host->make_bool((int)item->integer);
    case FORM_NULL: return host->make_null();
    default: return item->value;
  }
}

/* ---- Integers beyond 64 bits ---- */

/* The decimal text of an unsigned integer, or of -1 minus it. */
static item digits_of(reader *reader, const unsigned char *bytes, size_t count, bool is_negative) {
  unsigned char number[LONGEST_INTEGER + 1] = {0};
  memcpy(number + 1, bytes, count);
  for (size_t i = count + 1; is_negative && i-- > 0;)
    if (++number[i] != 0) break;
  char text[LONGEST_INTEGER * 3 + 4];
  size_t first = sizeof text, begin = 0;
  while (begin <= count) {
    unsigned rest = 0;
    for (size_t i = begin; i <= count; i++) {
      unsigned both = rest << 8 | number[i];
      number[i] = (unsigned char)(both / 10);
      rest = both % 10;
    }
    text[--first] = (char)('0' + rest);
    while (begin <= count && number[begin] == 0) begin++;
  }
  if (is_negative) text[--first] = '-';
  return (item){.form = FORM_DIGITS, .text = keep(reader, text + first, sizeof text - first)};
}

static item integer_of(reader *reader, uint64_t number, bool is_negative) {
  if (number <= INT64_MAX) return (item){.form = FORM_INTEGER, .integer = is_negative ? -1 - (int64_t)number : (int64_t)number};
  if (!is_negative) return (item){.form = FORM_UNSIGNED, .number = number};
  unsigned char bytes[8];
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(number >> (56 - 8 * i));
  return digits_of(reader, bytes, 8, true);
}

static item long_integer(reader *reader, rxd_text bytes, bool is_negative, size_t offset) {
  while (bytes.count > 0 && *bytes.bytes == 0) bytes.bytes++, bytes.count--;
  if (bytes.count > LONGEST_INTEGER)
    refuse(reader, "the integer at byte %zu has %zu bytes; at most %d are read", offset, bytes.count, LONGEST_INTEGER);
  if (bytes.count > LONGEST_INTEGER) return (item){.form = FORM_NULL};
  if (bytes.count > 8) return digits_of(reader, (const unsigned char *)bytes.bytes, bytes.count, is_negative);
  uint64_t number = 0;
  for (size_t i = 0; i < bytes.count; i++) number = number << 8 | (unsigned char)bytes.bytes[i];
  return integer_of(reader, number, is_negative);
}

/* ---- Tags ---- */

static item time_since_1970(reader *reader, const item *content, size_t offset) {
  int64_t seconds = 0;
  uint32_t nanoseconds = 0;
  bool is_time = false;
  item made = {.form = FORM_VALUE, .value = host->make_null()};
  if (content->form == FORM_INTEGER) {
    seconds = content->integer;
    is_time = true;
  } else if (content->form == FORM_DOUBLE && fabs(content->fraction) < 1e10) {
    double whole = floor(content->fraction);
    seconds = (int64_t)whole;
    nanoseconds = (uint32_t)llround((content->fraction - whole) * 1e9);
    if (nanoseconds == 1000000000) nanoseconds = 0, seconds++;
    is_time = true;
  } else if (content->form != FORM_DOUBLE && content->form != FORM_UNSIGNED && content->form != FORM_DIGITS) {
    refuse(reader, "the time at byte %zu is not a number", offset);
  }
  if (!is_time || !make_time(seconds, nanoseconds, &made.value)) refuse(reader, "the time at byte %zu " TIMES_ARE_FROM_TO, offset);
  return made;
}

static item time_of_text(reader *reader, const item *content, size_t offset) {
  int64_t seconds;
  uint32_t nanoseconds;
  item made = {.form = FORM_VALUE, .value = host->make_null()};
  if (content->form != FORM_TEXT || !parse_time(content->text, &seconds, &nanoseconds))
    refuse(reader, "the time at byte %zu is not a text of RFC 3339", offset);
  else if (!make_time(seconds, nanoseconds, &made.value))
    refuse(reader, "the time at byte %zu " TIMES_ARE_FROM_TO, offset);
  return made;
}

static item tagged(reader *reader, uint64_t tag, size_t offset, const item *content) {
  switch (tag) {
    case 0: return time_of_text(reader, content, offset);
    case 1: return time_since_1970(reader, content, offset);
    case 2: case 3:
      if (content->form == FORM_BYTES) return long_integer(reader, content->text, tag == 3, offset);
      refuse(reader, "the integer at byte %zu is not bytes", offset);
      return *content;
    case 21: case 22: case 23:                        /* expected conversions to text */
    case 24:                                          /* bytes that contain CBOR */
    case 32: case 33: case 34: case 35: case 36:      /* texts: URI, base64, regular expression, MIME message */
    case 55799: case 55800: return *content;          /* self-described CBOR, or a sequence */
    default: {
      const item number = integer_of(reader, tag, false);
      const rxd_text names[] = {RXD_TEXT_OF("tag"), RXD_TEXT_OF("value")};
      const rxd_value values[] = {finished(reader, &number), finished(reader, content)};
      return (item){.form = FORM_VALUE, .value = host->make_object(reader->scope, names, values, 2)};
    }
  }
}

/* ---- Lists and maps ---- */

static bool name_of(reader *reader, const item *key, rxd_text *name) {
  const char *what;
  switch (key->form) {
    case FORM_TEXT: case FORM_DIGITS: *name = key->text; return true;
    case FORM_INTEGER: case FORM_UNSIGNED: *name = keep_number(reader, key); return true;
    case FORM_BOOL: *name = key->integer ? RXD_TEXT_OF("true") : RXD_TEXT_OF("false"); return true;
    case FORM_NULL: what = "null"; break;
    case FORM_DOUBLE: what = "a number with a fraction"; break;
    case FORM_BYTES: what = "bytes"; break;
    default:
      what = host->kind(&key->value) == RXD_TIMESTAMP ? "a time" : host->kind(&key->value) == RXD_LIST ? "a list" : "a map or has a tag";
  }
  refuse(reader, "a map has a key that is %s, %s at byte %zu; keys are texts, whole numbers or booleans", what,
         key->form == FORM_VALUE ? "whose last part is" : "which is", reader->offset);
  return false;
}

static item finish_object(reader *reader, size_t start) {
  size_t count = reader->stack->count - start;
  rxd_text twice;
  if (repeated_name(reader->stack->names + start, count, &twice) != NULL) {
    if (twice.bytes >= reader->begin && twice.bytes < reader->end)
      refuse(reader, "a map has the key '%.*s' twice, again at byte %zu", shown_count(twice), twice.bytes, (size_t)(twice.bytes - reader->begin));
    else
      refuse(reader, "the map whose last part is at byte %zu has the key '%.*s' twice", reader->offset, shown_count(twice), twice.bytes);
  }
  return (item){.form = FORM_VALUE, .value = pop_object(reader->scope, reader->stack, start)};
}

/* Adds a complete value to its parent, which may complete the parent too. */
static void add(reader *reader, item item) {
  while (!reader->has_failed) {
    if (reader->depth == 0) {
      reader->result = item;
      reader->is_complete = true;
      return;
    }
    level *top = &reader->levels[reader->depth - 1];
    switch (top->part) {
      case IN_LIST:
        push_value(reader->stack, finished(reader, &item));
        if (top->is_indefinite || --top->left > 0) return;
        item.form = FORM_VALUE;
        item.value = pop_list(reader->scope, reader->stack, top->start);
        break;
      case IN_OBJECT:
        if (!top->has_name) {
          top->has_name = name_of(reader, &item, &top->name);
          return;
        }
        push_member(reader->stack, top->name, finished(reader, &item));
        top->has_name = false;
        if (top->is_indefinite || --top->left > 0) return;
        item = finish_object(reader, top->start);
        break;
      case IN_TAG: item = tagged(reader, top->left, top->offset, &item); break;
      default:
        if (item.form != (top->part == IN_TEXT ? FORM_TEXT : FORM_BYTES)) {
          refuse(reader, "the chunk at byte %zu is not of the same kind as its string", reader->offset);
          return;
        }
        output_append(&reader->chunks, item.text.bytes, item.text.count);
        return;
    }
    reader->depth--;
  }
}

static void begin(reader *reader, part part, bool is_indefinite, uint64_t left) {
  if (reader->depth > 0 && reader->levels[reader->depth - 1].part >= IN_TEXT) {
    refuse(reader, "the chunk at byte %zu is not of the same kind as its string", reader->offset);
    return;
  }
  if (reader->depth == DEPTH_LIMIT) {
    refuse(reader, "the value at byte %zu is nested more deeply than %d levels", reader->offset, DEPTH_LIMIT);
    return;
  }
  reader->levels[reader->depth++] = (level){
      .part = part, .is_indefinite = is_indefinite, .left = left, .offset = reader->offset,
      .start = part >= IN_TEXT ? reader->chunks.count : reader->stack->count};
}

/* ---- What libcbor calls ---- */

static void on_integer(void *context, uint64_t number) { add(context, integer_of(context, number, false)); }
static void on_uint8(void *context, uint8_t number) { on_integer(context, number); }
static void on_uint16(void *context, uint16_t number) { on_integer(context, number); }
static void on_uint32(void *context, uint32_t number) { on_integer(context, number); }
static void on_negative(void *context, uint64_t number) { add(context, integer_of(context, number, true)); }
static void on_negint8(void *context, uint8_t number) { on_negative(context, number); }
static void on_negint16(void *context, uint16_t number) { on_negative(context, number); }
static void on_negint32(void *context, uint32_t number) { on_negative(context, number); }

static void on_bytes(void *context, cbor_data bytes, size_t count) {
  add(context, (item){.form = FORM_BYTES, .text = {count == 0 ? "" : (const char *)bytes, count}});
}
static void on_text(void *context, cbor_data bytes, size_t count) {
  reader *reader = context;
  rxd_text text = {count == 0 ? "" : (const char *)bytes, count};
  if (!is_utf8(text.bytes, count)) refuse(reader, "the text at byte %zu is not UTF-8", reader->offset);
  add(reader, (item){.form = FORM_TEXT, .text = text});
}
static void on_bytes_start(void *context) { begin(context, IN_BYTES, true, 0); }
static void on_text_start(void *context) { begin(context, IN_TEXT, true, 0); }

static void on_list(void *context, size_t count) {
  reader *reader = context;
  begin(reader, IN_LIST, false, count);
  if (count > 0 || reader->has_failed) return;
  reader->depth--;
  add(reader, (item){.form = FORM_VALUE, .value = host->make_list(reader->scope, NULL, 0)});
}
static void on_list_start(void *context) { begin(context, IN_LIST, true, 0); }
static void on_map(void *context, size_t count) {
  reader *reader = context;
  begin(reader, IN_OBJECT, false, count);
  if (count > 0 || reader->has_failed) return;
  reader->depth--;
  add(reader, finish_object(reader, reader->stack->count));
}
static void on_map_start(void *context) { begin(context, IN_OBJECT, true, 0); }
static void on_tag(void *context, uint64_t tag) { begin(context, IN_TAG, false, tag); }

static void on_float(void *context, float number) { add(context, (item){.form = FORM_DOUBLE, .fraction = (double)number}); }
static void on_double(void *context, double number) { add(context, (item){.form = FORM_DOUBLE, .fraction = number}); }
static void on_null(void *context) { add(context, (item){.form = FORM_NULL}); }
static void on_bool(void *context, bool value) { add(context, (item){.form = FORM_BOOL, .integer = value}); }

static void on_break(void *context) {
  reader *reader = context;
  level *top = reader->depth == 0 ? NULL : &reader->levels[reader->depth - 1];
  if (top == NULL || !top->is_indefinite || top->has_name) {
    refuse(reader, "the break at byte %zu ends nothing", reader->offset);
    return;
  }
  item made = {.form = FORM_VALUE};
  switch (top->part) {
    case IN_LIST: made.value = pop_list(reader->scope, reader->stack, top->start); break;
    case IN_OBJECT: made = finish_object(reader, top->start); break;
    default:
      made.form = top->part == IN_TEXT ? FORM_TEXT : FORM_BYTES;
      made.text = keep(reader, reader->chunks.bytes + top->start, reader->chunks.count - top->start);
      reader->chunks.count = top->start;
  }
  reader->depth--;
  add(reader, made);
}

static const struct cbor_callbacks callbacks = {
    .uint8 = on_uint8, .uint16 = on_uint16, .uint32 = on_uint32, .uint64 = on_integer,
    .negint8 = on_negint8, .negint16 = on_negint16, .negint32 = on_negint32, .negint64 = on_negative,
    .byte_string = on_bytes, .byte_string_start = on_bytes_start, .string = on_text, .string_start = on_text_start,
    .array_start = on_list, .indef_array_start = on_list_start, .map_start = on_map, .indef_map_start = on_map_start,
    .tag = on_tag, .float2 = on_float, .float4 = on_float, .float8 = on_double,
    .undefined = on_null, .null = on_null, .boolean = on_bool, .indef_break = on_break};

/* Reports why libcbor rejects this byte. */
static void refuse_byte(reader *reader, size_t count) {
  const unsigned char *at = (const unsigned char *)reader->begin + reader->offset;
  if (*at >= 0xe0 && *at < 0xf4) refuse(reader, "the simple value %d at byte %zu has no meaning here", *at - 0xe0, reader->offset);
  else if (*at == 0xf8 && count > 1) refuse(reader, "the simple value %d at byte %zu has no meaning here", at[1], reader->offset);
  else if (*at == 0xf8) refuse(reader, "the value at byte %zu is not complete: the input ends at byte %zu", reader->offset, reader->offset + count);
  else refuse(reader, "byte %zu is 0x%02x, with which no value begins", reader->offset, *at);
}

int decode_value(rxd_scope *scope, const void *how, rxd_text input, size_t *offset, value_stack *stack, rxd_value *value) {
  (void)how;
  reader reader;
  reader.scope = scope; /* the stack levels need no initial values */
  reader.begin = input.bytes;
  reader.end = input.bytes + input.count;
  reader.stack = stack;
  reader.blocks = NULL;
  reader.is_complete = reader.has_failed = false;
  reader.depth = 0;
  begin_output(&reader.chunks);
  size_t start = *offset;
  while (!reader.is_complete && !reader.has_failed) {
    reader.offset = *offset;
    /* libcbor 0.8 rejects the short tags that were unassigned when it was written. */
    if (*offset < input.count && (unsigned char)input.bytes[*offset] >= 0xc6 && (unsigned char)input.bytes[*offset] <= 0xd4) {
      on_tag(&reader, (unsigned char)input.bytes[(*offset)++] & 0x1f);
      continue;
    }
    struct cbor_decoder_result result =
        cbor_stream_decode((cbor_data)input.bytes + *offset, input.count - *offset, &callbacks, &reader);
    if (result.status == CBOR_DECODER_FINISHED) *offset += result.read;
    else if (result.status == CBOR_DECODER_ERROR) refuse_byte(&reader, input.count - *offset);
    else refuse(&reader, "the value at byte %zu is not complete: the input ends at byte %zu", start, input.count);
  }
  if (!reader.has_failed) *value = finished(&reader, &reader.result);
  stack->count = 0;
  free_output(&reader.chunks);
  while (reader.blocks != NULL) {
    block *next = reader.blocks->next;
    free(reader.blocks);
    reader.blocks = next;
  }
  return reader.has_failed ? RXD_FAILED : RXD_OK;
}
