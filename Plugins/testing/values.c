// Values of the test host; see values.h.
#include "values.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- Memory and values ----

typedef struct block {
  struct block *next;
  _Alignas(16) char bytes[];
} block;

void *allocate(rxd_scope *scope, size_t count) {
  block *made = calloc(1, sizeof(block) + count + 1);
  made->next = scope->blocks;
  scope->blocks = made;
  return made->bytes;
}

void clear(rxd_scope *scope) {
  while (scope->blocks != NULL) {
    block *next = scope->blocks->next;
    free(scope->blocks);
    scope->blocks = next;
  }
  free(scope->message);
  free(scope->at);
  scope->message = scope->at = NULL;
}

static node *make(rxd_scope *scope, int kind) {
  node *made = allocate(scope, sizeof(node));
  made->kind = kind;
  return made;
}

static node *make_string(rxd_scope *scope, int kind, const char *bytes, size_t count) {
  node *made = make(scope, kind);
  made->text.bytes = allocate(scope, count);
  if (count > 0) memcpy(made->text.bytes, bytes, count);
  made->text.count = count;
  return made;
}

/// Numbers, times and booleans fit into the value itself: word[0] is the kind, which is odd; word[1] the bits.
static rxd_value small(int kind, int64_t bits) { return (rxd_value){{(uint64_t)kind << 1 | 1, (uint64_t)bits}}; }
rxd_value value_of(const node *node) {
  if (node == NULL) return (rxd_value){{0, 0}};
  if (node->kind == RXD_TEXT || node->kind == RXD_BYTES || node->kind == RXD_LIST || node->kind == RXD_OBJECT)
    return (rxd_value){{(uint64_t)(uintptr_t)node, 0}};
  return small(node->kind, node->integer);
}
static node *node_of(const rxd_value *value) {
  return value->word[0] & 1 ? NULL : (node *)(uintptr_t)value->word[0];
}
static node *tree_of(rxd_scope *scope, const rxd_value *value) {
  if (!(value->word[0] & 1)) return node_of(value);
  node *made = make(scope, (int)(value->word[0] >> 1));
  made->integer = (int64_t)value->word[1];
  return made;
}

// ---- JSON ----

typedef struct { const char *at, *end; rxd_scope *scope; int is_extended, depth; } parser;

static void skip(parser *p) {
  while (p->at < p->end && strchr(" \t\r\n", *p->at) && *p->at) p->at++;
}

static void put_utf8(char **to, uint32_t c) {
  char *t = *to;
  if (c < 0x80) *t++ = (char)c;
  else if (c < 0x800) *t++ = (char)(0xC0 | c >> 6), *t++ = (char)(0x80 | (c & 63));
  else if (c < 0x10000) *t++ = (char)(0xE0 | c >> 12), *t++ = (char)(0x80 | (c >> 6 & 63)), *t++ = (char)(0x80 | (c & 63));
  else *t++ = (char)(0xF0 | c >> 18), *t++ = (char)(0x80 | (c >> 12 & 63)), *t++ = (char)(0x80 | (c >> 6 & 63)),
       *t++ = (char)(0x80 | (c & 63));
  *to = t;
}

static int hex4(parser *p, uint32_t *c) {
  char digits[5] = {0};
  if (p->end - p->at < 4) return 0;
  memcpy(digits, p->at, 4);
  char *end;
  *c = (uint32_t)strtoul(digits, &end, 16);
  p->at += 4;
  return *end == 0;
}

static node *parse_string(parser *p) {
  node *made = make(p->scope, RXD_TEXT);
  const char *end = p->at + 1;
  while (end < p->end && *end != '"') end += *end == '\\' && end + 1 < p->end ? 2 : 1;
  char *to = made->text.bytes = allocate(p->scope, (size_t)(end - p->at));
  for (p->at++; p->at < p->end && *p->at != '"';) {
    if ((unsigned char)*p->at < 0x20) return NULL;
    if (*p->at != '\\') { *to++ = *p->at++; continue; }
    if (++p->at == p->end) return NULL;
    char c = *p->at++;
    uint32_t code, low;
    switch (c) {
      case 'n': *to++ = '\n'; break;
      case 't': *to++ = '\t'; break;
      case 'r': *to++ = '\r'; break;
      case 'b': *to++ = '\b'; break;
      case 'f': *to++ = '\f'; break;
      case '"': case '\\': case '/': *to++ = c; break;
      case 'u':
        if (!hex4(p, &code)) return NULL;
        if (code >= 0xD800 && code < 0xDC00) {
          if (p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u') return NULL;
          p->at += 2;
          if (!hex4(p, &low) || low < 0xDC00 || low > 0xDFFF) return NULL;
          code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
        put_utf8(&to, code);
        break;
      default: return NULL;
    }
  }
  if (p->at == p->end) return NULL;
  p->at++;
  made->text.count = (size_t)(to - made->text.bytes);
  return made;
}

static node *parse_value(parser *p);

/// Replaces a text of hexadecimal digits by the bytes.
static void from_hex(node *made) {
  char *bytes = made->text.bytes;
  for (size_t i = 0; i < made->text.count / 2; i++) {
    char digits[3] = {bytes[2 * i], bytes[2 * i + 1], 0};
    bytes[i] = (char)strtoul(digits, NULL, 16);
  }
  made->text.count /= 2;
  made->kind = RXD_BYTES;
}

static node *parse_items(parser *p, int kind) {
  node *made = make(p->scope, kind);
  size_t room = 0;
  node **values = NULL, **names = NULL;
  char close = kind == RXD_LIST ? ']' : '}';
  p->at++;
  skip(p);
  int is_good = p->at < p->end;
  if (is_good && *p->at == close) {
    p->at++;
    return made;
  }
  while (is_good) {
    if (made->items.count == room) {
      room = room * 2 + 8;
      values = realloc(values, room * sizeof *values);
      names = realloc(names, room * sizeof *names);
    }
    node *name = NULL;
    skip(p);
    if (kind == RXD_OBJECT) {
      is_good = p->at < p->end && *p->at == '"' && (name = parse_string(p)) != NULL;
      if (is_good) skip(p);
      is_good = is_good && p->at < p->end && *p->at++ == ':';
    }
    node *value = is_good ? parse_value(p) : NULL;
    if (value == NULL) { is_good = 0; break; }
    names[made->items.count] = name;
    values[made->items.count++] = value;
    skip(p);
    if (p->at == p->end) { is_good = 0; break; }
    char c = *p->at++;
    if (c == close) break;
    is_good = c == ',';
  }
  size_t bytes = made->items.count * sizeof(node *);
  made->items.values = allocate(p->scope, bytes);
  made->items.names = allocate(p->scope, bytes);
  if (bytes > 0) memcpy(made->items.values, values, bytes), memcpy(made->items.names, names, bytes);
  free(values);
  free(names);
  if (!is_good) return NULL;
  // {"$duration": 5} and similar objects in the input from Python.
  if (p->is_extended && kind == RXD_OBJECT && made->items.count == 1) {
    const char *name = made->items.names[0]->text.bytes;
    int64_t integer = made->items.values[0]->integer;
    if (!strcmp(name, "$duration")) made->kind = RXD_DURATION, made->integer = integer;
    else if (!strcmp(name, "$timestamp")) made->kind = RXD_TIMESTAMP, made->integer = integer;
    else if (!strcmp(name, "$absent")) made->kind = RXD_ABSENT, made->integer = 0;
    else if (!strcmp(name, "$bytes")) { made = made->items.values[0]; made->kind = RXD_BYTES; }
    else if (!strcmp(name, "$hex")) { made = made->items.values[0]; from_hex(made); }
    else if (!strcmp(name, "$double")) {
      made = made->items.values[0];
      made->number = strtod(made->text.bytes, NULL);
      made->kind = RXD_DOUBLE;
    }
  }
  return made;
}

static node *parse_value(parser *p) {
  skip(p);
  if (p->at == p->end || p->depth > 1000) return NULL;
  size_t left = (size_t)(p->end - p->at);
  node *made;
  switch (*p->at) {
    case '"': return parse_string(p);
    case '[': case '{':
      p->depth++;
      made = parse_items(p, *p->at == '[' ? RXD_LIST : RXD_OBJECT);
      p->depth--;
      return made;
    case 't': if (left < 4 || memcmp(p->at, "true", 4)) return NULL;
      p->at += 4; made = make(p->scope, RXD_BOOL); made->integer = 1; return made;
    case 'f': if (left < 5 || memcmp(p->at, "false", 5)) return NULL;
      p->at += 5; return make(p->scope, RXD_BOOL);
    case 'n': if (left < 4 || memcmp(p->at, "null", 4)) return NULL;
      p->at += 4; return make(p->scope, RXD_NULL);
    default: break;
  }
  char digits[400];
  size_t count = 0;
  while (count < left && count < sizeof digits - 1 && strchr("+-0123456789.eE", p->at[count])) count++;
  if (count == 0 || strchr(".eE+", p->at[0])) return NULL;
  memcpy(digits, p->at, count);
  digits[count] = 0;
  p->at += count;
  char *end;
  made = make(p->scope, RXD_INT);
  errno = 0;
  if (strpbrk(digits, ".eE") == NULL) {
    made->integer = strtoll(digits, &end, 10);
    if (errno == ERANGE && digits[0] != '-') {
      errno = 0;
      made->integer = (int64_t)strtoull(digits, &end, 10);
      made->kind = RXD_UINT;
    }
    if (errno == 0) return *end ? NULL : made;
  }
  made->kind = RXD_DOUBLE;
  made->number = strtod(digits, &end);
  return *end ? NULL : made;
}

node *parse(rxd_scope *scope, const char *bytes, size_t count, int is_extended) {
  parser p = {bytes, bytes + count, scope, is_extended, 0};
  node *made = parse_value(&p);
  skip(&p);
  return p.at == p.end ? made : NULL;
}

void put_string(FILE *to, const char *bytes, size_t count) {
  fputc('"', to);
  for (size_t i = 0; i < count; i++) {
    unsigned char c = (unsigned char)bytes[i];
    if (c == '"' || c == '\\') fprintf(to, "\\%c", c);
    else if (c < 0x20) fprintf(to, "\\u%04x", c);
    else fputc(c, to);
  }
  fputc('"', to);
}

/// `is_extended`: writes times, durations, bytes and doubles in the form that `parse` reads.
static void put_as(FILE *to, const node *value, int is_extended) {
  if (is_extended && value != NULL && (value->kind == RXD_TIMESTAMP || value->kind == RXD_DURATION)) {
    fprintf(to, "{\"$%s\":%" PRId64 "}", value->kind == RXD_TIMESTAMP ? "timestamp" : "duration", value->integer);
    return;
  }
  if (is_extended && value != NULL && value->kind == RXD_BYTES) {
    fputs("{\"$hex\":\"", to);
    for (size_t i = 0; i < value->text.count; i++) fprintf(to, "%02x", (unsigned char)value->text.bytes[i]);
    fputs("\"}", to);
    return;
  }
  if (is_extended && value != NULL && value->kind == RXD_DOUBLE) {
    fprintf(to, "{\"$double\":\"%.17g\"}", value->number);
    return;
  }
  if (value == NULL) { fputs("null", to); return; }
  switch (value->kind) {
    case RXD_BOOL: fputs(value->integer ? "true" : "false", to); break;
    case RXD_UINT: fprintf(to, "%" PRIu64, (uint64_t)value->integer); break;
    case RXD_INT: case RXD_DURATION: fprintf(to, "%" PRId64, value->integer); break;
    case RXD_DOUBLE: fprintf(to, "%.17g", value->number); break;
    case RXD_TEXT: put_string(to, value->text.bytes, value->text.count); break;
    case RXD_BYTES:
      fputs("\"hex:", to);
      for (size_t i = 0; i < value->text.count; i++) fprintf(to, "%02x", (unsigned char)value->text.bytes[i]);
      fputc('"', to);
      break;
    case RXD_TIMESTAMP: {
      int64_t seconds = value->integer / 1000000000, rest = value->integer % 1000000000;
      if (rest < 0) seconds--, rest += 1000000000;
      struct tm tm;
      char text[64];
      time_t time = seconds;
      gmtime_r(&time, &tm);
      strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
      fprintf(to, "\"%s.%09dZ\"", text, (int)rest);
      break;
    }
    case RXD_LIST: case RXD_OBJECT:
      fputc(value->kind == RXD_LIST ? '[' : '{', to);
      for (size_t i = 0; i < value->items.count; i++) {
        if (i > 0) fputc(',', to);
        if (value->kind == RXD_OBJECT) {
          put_string(to, value->items.names[i]->text.bytes, value->items.names[i]->text.count);
          fputc(':', to);
        }
        put_as(to, value->items.values[i], is_extended);
      }
      fputc(value->kind == RXD_LIST ? ']' : '}', to);
      break;
    default: fputs("null", to);
  }
}

static void put(FILE *to, const node *value) { put_as(to, value, 0); }

void put_value(FILE *to, const rxd_value *value) {
  rxd_scope scope = {0};
  put(to, tree_of(&scope, value));
  clear(&scope);
}

void put_typed_value(FILE *to, const rxd_value *value) {
  rxd_scope scope = {0};
  put_as(to, tree_of(&scope, value), 1);
  clear(&scope);
}

rxd_value bytes_value(rxd_scope *scope, const char *bytes, size_t count) {
  return value_of(make_string(scope, RXD_BYTES, bytes, count));
}

// ---- Called by plugins ----

int host_kind(const rxd_value *value) {
  if (value->word[0] & 1) return (int)(value->word[0] >> 1);
  return value->word[0] == 0 ? RXD_ABSENT : node_of(value)->kind;
}
static double as_number(const rxd_value *value) {
  double number;
  memcpy(&number, &value->word[1], sizeof number);
  return number;
}
static int host_boolean(const rxd_value *value) { return host_kind(value) == RXD_BOOL && value->word[1]; }
static int64_t host_integer(const rxd_value *value) {
  switch (host_kind(value)) {
    case RXD_INT: case RXD_TIMESTAMP: case RXD_DURATION: return (int64_t)value->word[1];
    case RXD_UINT: return value->word[1] > INT64_MAX ? INT64_MAX : (int64_t)value->word[1];
    case RXD_DOUBLE: return (int64_t)as_number(value);
    default: return 0;
  }
}
static double host_number(const rxd_value *value) {
  switch (host_kind(value)) {
    case RXD_INT: return (double)(int64_t)value->word[1];
    case RXD_UINT: return (double)value->word[1];
    case RXD_DOUBLE: return as_number(value);
    default: return 0;
  }
}
rxd_text host_text(rxd_scope *scope, const rxd_value *value) {
  (void)scope;
  int kind = host_kind(value);
  if (kind != RXD_TEXT && kind != RXD_BYTES) return (rxd_text){"", 0};
  // A copy without a terminating zero, so that a sanitizer detects plugins that rely on one.
  node *node = node_of(value);
  char *bytes = allocate(scope, node->text.count);
  memcpy(bytes, node->text.bytes, node->text.count);
  bytes[node->text.count] = '#';
  return (rxd_text){bytes, node->text.count};
}
size_t host_count(rxd_scope *scope, const rxd_value *value) {
  (void)scope;
  int kind = host_kind(value);
  return kind == RXD_LIST || kind == RXD_OBJECT ? node_of(value)->items.count : 0;
}
rxd_value host_member(rxd_scope *scope, const rxd_value *object, rxd_text name) {
  (void)scope;
  if (host_kind(object) != RXD_OBJECT) return value_of(NULL);
  node *node = node_of(object);
  for (size_t i = 0; i < node->items.count; i++) {
    if (node->items.names[i]->text.count == name.count && !memcmp(node->items.names[i]->text.bytes, name.bytes, name.count))
      return value_of(node->items.values[i]);
  }
  return value_of(NULL);
}
rxd_value host_element(rxd_scope *scope, const rxd_value *list, size_t index) {
  (void)scope;
  return host_kind(list) == RXD_LIST && index < node_of(list)->items.count ? value_of(node_of(list)->items.values[index])
                                                                           : value_of(NULL);
}
static rxd_value host_entry(rxd_scope *scope, const rxd_value *object, size_t index, rxd_text *name) {
  (void)scope;
  if (host_kind(object) != RXD_OBJECT || index >= node_of(object)->items.count) return value_of(NULL);
  node *node = node_of(object);
  *name = (rxd_text){node->items.names[index]->text.bytes, node->items.names[index]->text.count};
  return value_of(node->items.values[index]);
}
static rxd_text write_json(rxd_scope *scope, const rxd_value *value, int is_extended) {
  char *text = NULL;
  size_t count = 0;
  FILE *to = open_memstream(&text, &count);
  put_as(to, tree_of(scope, value), is_extended);
  fclose(to);
  char *bytes = allocate(scope, count);
  memcpy(bytes, text, count);
  bytes[count] = '#';
  free(text);
  return (rxd_text){bytes, count};
}
rxd_text host_json(rxd_scope *scope, const rxd_value *value) { return write_json(scope, value, 0); }
static rxd_text host_encode(rxd_scope *scope, const rxd_value *value) { return write_json(scope, value, 1); }

static rxd_value host_make_null(void) { return small(RXD_NULL, 0); }
static rxd_value host_make_bool(int value) { return small(RXD_BOOL, value != 0); }
static rxd_value host_make_int(int64_t value) { return small(RXD_INT, value); }
static rxd_value host_make_uint(uint64_t value) {
  return value <= INT64_MAX ? small(RXD_INT, (int64_t)value) : small(RXD_UINT, (int64_t)value);
}
static uint64_t host_unsigned_integer(const rxd_value *value) {
  switch (host_kind(value)) {
    case RXD_INT: return (int64_t)value->word[1] < 0 ? 0 : value->word[1];
    case RXD_UINT: return value->word[1];
    default: return 0;
  }
}
static rxd_value host_make_double(double value) {
  int64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return small(RXD_DOUBLE, bits);
}
static rxd_value host_make_timestamp(int64_t value) { return small(RXD_TIMESTAMP, value); }
static rxd_value host_make_duration(int64_t value) { return small(RXD_DURATION, value); }
// The length of the UTF-8 character at `at`; 0: the bytes are not valid UTF-8.
static size_t character(const unsigned char *at, size_t count) {
  unsigned char first = at[0];
  size_t length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (length > count) return 0;
  for (size_t i = 1; i < length; i++)
    if ((at[i] & 0xc0) != 0x80) return 0;
  if ((first == 0xe0 && at[1] < 0xa0) || (first == 0xed && at[1] >= 0xa0)) return 0;
  if ((first == 0xf0 && at[1] < 0x90) || (first == 0xf4 && at[1] >= 0x90)) return 0;
  return length;
}
// As in rxd, bytes that are not valid UTF-8 become U+FFFD.
static node *make_repaired(rxd_scope *scope, rxd_text text) {
  const unsigned char *bytes = (const unsigned char *)text.bytes;
  char *repaired = allocate(scope, 3 * text.count);
  size_t made = 0;
  for (size_t at = 0; at < text.count;) {
    size_t length = character(bytes + at, text.count - at);
    memcpy(repaired + made, length == 0 ? "\xef\xbf\xbd" : (const char *)bytes + at, length == 0 ? 3 : length);
    made += length == 0 ? 3 : length;
    at += length == 0 ? 1 : length;
  }
  return make_string(scope, RXD_TEXT, repaired, made);
}
static rxd_value host_make_text(rxd_scope *scope, rxd_text text) { return value_of(make_repaired(scope, text)); }
static rxd_value host_make_bytes(rxd_scope *scope, rxd_text text) {
  return value_of(make_string(scope, RXD_BYTES, text.bytes, text.count));
}
static rxd_value make_items(rxd_scope *scope, int kind, const rxd_text *names, const rxd_value *values, size_t count) {
  node *made = make(scope, kind);
  made->items.count = count;
  made->items.values = allocate(scope, count * sizeof(node *));
  made->items.names = allocate(scope, count * sizeof(node *));
  for (size_t i = 0; i < count; i++) {
    made->items.values[i] = tree_of(scope, &values[i]);
    if (names != NULL) made->items.names[i] = make_repaired(scope, names[i]);
  }
  return value_of(made);
}
static rxd_value host_make_list(rxd_scope *scope, const rxd_value *elements, size_t count) {
  return make_items(scope, RXD_LIST, NULL, elements, count);
}
static rxd_value host_make_object(rxd_scope *scope, const rxd_text *names, const rxd_value *values, size_t count) {
  return make_items(scope, RXD_OBJECT, names, values, count);
}
static rxd_value host_with_member(rxd_scope *scope, const rxd_value *object, rxd_text name, const rxd_value *value) {
  node *old = host_kind(object) == RXD_OBJECT ? node_of(object) : NULL, *made = make(scope, RXD_OBJECT);
  size_t count = old == NULL ? 0 : old->items.count, place = count;
  made->items.values = allocate(scope, (count + 1) * sizeof(node *));
  made->items.names = allocate(scope, (count + 1) * sizeof(node *));
  for (size_t i = 0; i < count; i++) {
    made->items.values[i] = old->items.values[i];
    node *n = made->items.names[i] = old->items.names[i];
    if (n->text.count == name.count && !memcmp(n->text.bytes, name.bytes, name.count)) place = i;
  }
  made->items.count = place == count ? count + 1 : count;
  made->items.names[place] = make_string(scope, RXD_TEXT, name.bytes, name.count);
  made->items.values[place] = tree_of(scope, value);
  return value_of(made);
}
static int host_parse_json(rxd_scope *scope, rxd_text json, rxd_value *value) {
  node *made = parse(scope, json.bytes, json.count, 0);
  if (made == NULL) return RXD_FAILED;
  *value = value_of(made);
  return RXD_OK;
}

static int host_decode(rxd_scope *scope, rxd_text bytes, rxd_value *value) {
  node *made = parse(scope, bytes.bytes, bytes.count, 1);
  if (made == NULL) return RXD_FAILED;
  *value = value_of(made);
  return RXD_OK;
}

void offer_values(rxd_host *host) {
  host->kind = host_kind;
  host->boolean = host_boolean;
  host->integer = host_integer;
  host->number = host_number;
  host->text = host_text;
  host->count = host_count;
  host->member = host_member;
  host->element = host_element;
  host->entry = host_entry;
  host->json = host_json;
  host->make_null = host_make_null;
  host->make_bool = host_make_bool;
  host->make_int = host_make_int;
  host->make_uint = host_make_uint;
  host->unsigned_integer = host_unsigned_integer;
  host->make_double = host_make_double;
  host->make_timestamp = host_make_timestamp;
  host->make_duration = host_make_duration;
  host->make_text = host_make_text;
  host->make_bytes = host_make_bytes;
  host->make_list = host_make_list;
  host->make_object = host_make_object;
  host->with_member = host_with_member;
  host->parse_json = host_parse_json;
  host->encode = host_encode;
  host->decode = host_decode;
}
