/* Parses JSON schemas; makes their canonical form and its fingerprint. */
#include "avro_format.h"

/* ---- Memory ---- */

struct block {
  struct block *next;
};

void *arena_take(arena *arena, size_t count) {
  struct block *block = need(calloc(1, sizeof *block + count));
  block->next = arena->blocks;
  arena->blocks = block;
  return block + 1;
}

rxd_text arena_text(arena *arena, rxd_text text) {
  char *copy = arena_take(arena, text.count + 1);
  if (text.count > 0) memcpy(copy, text.bytes, text.count);
  return (rxd_text){copy, text.count};
}

void arena_free(arena *arena) {
  while (arena->blocks != NULL) {
    struct block *next = arena->blocks->next;
    free(arena->blocks);
    arena->blocks = next;
  }
}

/* ---- Parsing ---- */

#define SCHEMA_DEPTH 64
#define MOST_FIXED (1 << 20)

static const char *const type_names[] = {"null", "boolean", "int", "long", "float", "double", "bytes", "string", "record", "enum", "array", "map",
                                         "union", "fixed"};

const char *type_name(avro_type type) { return type_names[type]; }

/* A default, to be encoded after all names are known. */
typedef struct {
  record_field *field;
  rxd_value value;
  rxd_text record;
} pending_default;

typedef struct {
  rxd_scope *scope;
  arena *arena;
  const char *at;
  const node **named;
  size_t named_count, named_capacity;
  pending_default *defaults;
  size_t default_count, default_capacity;
} parser;

static const node *fail_schema(parser *parser, const char *format, ...) __attribute__((format(printf, 2, 3)));
static const node *fail_schema(parser *parser, const char *format, ...) {
  char message[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  host->fail(parser->scope, text_of(message), text_of(parser->at));
  return NULL;
}

static rxd_value attribute(parser *parser, const rxd_value *json, const char *name) { return host->member(parser->scope, json, text_of(name)); }

static rxd_text text_attribute(parser *parser, const rxd_value *json, const char *name) {
  rxd_value value = attribute(parser, json, name);
  return host->kind(&value) == RXD_TEXT ? host->text(parser->scope, &value) : (rxd_text){NULL, 0};
}

static bool is_name(rxd_text name, bool has_dots) {
  bool is_first = true;
  for (size_t i = 0; i < name.count; i++) {
    unsigned char c = (unsigned char)name.bytes[i];
    if (c == '.' && has_dots && !is_first) is_first = true;
    else if (isalpha(c) || c == '_' || (isdigit(c) && !is_first)) is_first = false;
    else return false;
  }
  return !is_first;
}

/* The full name: `name` itself if it has dots, otherwise qualified by `space`. */
static rxd_text full_name(parser *parser, rxd_text name, rxd_text space) {
  if (space.count == 0 || memchr(name.bytes, '.', name.count) != NULL) return arena_text(parser->arena, name);
  char *made = arena_take(parser->arena, space.count + 1 + name.count + 1);
  memcpy(made, space.bytes, space.count);
  made[space.count] = '.';
  memcpy(made + space.count + 1, name.bytes, name.count);
  return (rxd_text){made, space.count + 1 + name.count};
}

static rxd_text space_of(rxd_text name) {
  const char *dot = memrchr(name.bytes, '.', name.count);
  return dot == NULL ? (rxd_text){"", 0} : (rxd_text){name.bytes, (size_t)(dot - name.bytes)};
}

static const node *find_named(parser *parser, rxd_text name) {
  for (size_t i = 0; i < parser->named_count; i++)
    if (text_is(parser->named[i]->name, name)) return parser->named[i];
  return NULL;
}

static bool read_aliases(parser *parser, const rxd_value *json, bool are_full, rxd_text space, const rxd_text **aliases, size_t *count) {
  rxd_value list = attribute(parser, json, "aliases");
  if (host->kind(&list) != RXD_LIST) return true;
  *count = host->count(parser->scope, &list);
  rxd_text *made = arena_take(parser->arena, *count * sizeof *made + 1);
  for (size_t i = 0; i < *count; i++) {
    rxd_value one = host->element(parser->scope, &list, i);
    rxd_text name = host->text(parser->scope, &one);
    if (!is_name(name, are_full)) return fail_schema(parser, "the schema has the alias '%.*s', which is not a name", shown_count(name), name.bytes) != NULL;
    made[i] = are_full ? full_name(parser, name, space) : arena_text(parser->arena, name);
  }
  *aliases = made;
  return true;
}

static void read_logical(parser *parser, const rxd_value *json, node *made) {
  static const struct { const char *name; avro_type type; logical_type logical; } known[] = {
      {"date", AVRO_INT, LOGICAL_DATE}, {"time-millis", AVRO_INT, LOGICAL_TIME_MILLIS}, {"time-micros", AVRO_LONG, LOGICAL_TIME_MICROS},
      {"timestamp-millis", AVRO_LONG, LOGICAL_MILLIS}, {"timestamp-micros", AVRO_LONG, LOGICAL_MICROS}, {"timestamp-nanos", AVRO_LONG, LOGICAL_NANOS},
      {"local-timestamp-millis", AVRO_LONG, LOGICAL_LOCAL_MILLIS}, {"local-timestamp-micros", AVRO_LONG, LOGICAL_LOCAL_MICROS},
      {"local-timestamp-nanos", AVRO_LONG, LOGICAL_LOCAL_NANOS}, {"uuid", AVRO_STRING, LOGICAL_UUID}, {"decimal", AVRO_BYTES, LOGICAL_DECIMAL},
      {"decimal", AVRO_FIXED, LOGICAL_DECIMAL}, {"uuid", AVRO_FIXED, LOGICAL_UUID}, {"duration", AVRO_FIXED, LOGICAL_DURATION}};
  rxd_text name = text_attribute(parser, json, "logicalType");
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].type == made->type && text_is(name, text_of(known[i].name))) made->logical = known[i].logical;
  if (made->logical == LOGICAL_UUID && made->type == AVRO_FIXED && made->size != 16) made->logical = LOGICAL_NONE;
  if (made->logical == LOGICAL_DURATION && made->size != 12) made->logical = LOGICAL_NONE;
  if (made->logical == LOGICAL_DECIMAL) {
    rxd_value precision = attribute(parser, json, "precision"), scale = attribute(parser, json, "scale");
    int64_t digits = host->integer(&precision), behind = host->integer(&scale);
    /* By the specification, an invalid logical type is ignored. */
    if (digits < 1 || digits > 2000 || behind < 0 || behind > digits) made->logical = LOGICAL_NONE;
    made->precision = (uint32_t)digits;
    made->scale = (uint32_t)behind;
  }
}

static const node *parse_node(parser *parser, const rxd_value *json, rxd_text space, int depth);

static node *new_node(parser *parser, avro_type type) {
  node *made = arena_take(parser->arena, sizeof *made);
  made->type = type;
  made->default_symbol = -1;
  return made;
}

static const node *parse_name(parser *parser, rxd_text name, rxd_text space) {
  for (int type = AVRO_NULL; type <= AVRO_STRING; type++)
    if (text_is(name, text_of(type_names[type]))) return new_node(parser, (avro_type)type);
  const node *found = find_named(parser, full_name(parser, name, space));
  if (found == NULL) found = find_named(parser, name);
  return found != NULL ? found : fail_schema(parser, "the schema has no type '%.*s'", shown_count(name), name.bytes);
}

static const node *parse_union(parser *parser, const rxd_value *json, rxd_text space, int depth) {
  node *made = new_node(parser, AVRO_UNION);
  made->count = host->count(parser->scope, json);
  made->branches = arena_take(parser->arena, made->count * sizeof *made->branches + 1);
  if (made->count == 0) return fail_schema(parser, "a union of the schema is empty");
  for (size_t i = 0; i < made->count; i++) {
    rxd_value branch = host->element(parser->scope, json, i);
    made->branches[i] = parse_node(parser, &branch, space, depth + 1);
    if (made->branches[i] == NULL) return NULL;
    if (made->branches[i]->type == AVRO_UNION) return fail_schema(parser, "a union of the schema has a union in it");
    for (size_t j = 0; j < i; j++)
      if (made->branches[j]->type == made->branches[i]->type && text_is(made->branches[j]->name, made->branches[i]->name))
        return fail_schema(parser, "a union of the schema has the type '%s' twice", type_names[made->branches[i]->type]);
  }
  return made;
}

static bool parse_fields(parser *parser, const rxd_value *json, node *made, int depth) {
  rxd_value fields = attribute(parser, json, "fields");
  if (host->kind(&fields) != RXD_LIST) return fail_schema(parser, "the record '%.*s' has no fields", shown_count(made->name), made->name.bytes) != NULL;
  made->count = host->count(parser->scope, &fields);
  made->fields = arena_take(parser->arena, made->count * sizeof *made->fields + 1);
  rxd_text *names = need(malloc((made->count + 1) * sizeof *names)), twice;
  bool is_good = true;
  for (size_t i = 0; i < made->count && is_good; i++) {
    record_field *field = &made->fields[i];
    rxd_value one = host->element(parser->scope, &fields, i), type = attribute(parser, &one, "type"), otherwise = attribute(parser, &one, "default");
    rxd_text name = text_attribute(parser, &one, "name");
    is_good = is_name(name, false);
    if (!is_good) {
      fail_schema(parser, "a field of the record '%.*s' has the name '%.*s'", shown_count(made->name), made->name.bytes, shown_count(name), name.bytes == NULL ? "" : name.bytes);
      break;
    }
    names[i] = field->name = arena_text(parser->arena, name);
    field->type = parse_node(parser, &type, space_of(made->name), depth + 1);
    is_good = field->type != NULL && read_aliases(parser, &one, false, (rxd_text){"", 0}, &field->aliases, &field->alias_count);
    if (!is_good || host->kind(&otherwise) == RXD_ABSENT) continue;
    field->has_default = true;
    if (parser->default_count == parser->default_capacity) {
      parser->default_capacity = parser->default_capacity * 2 + 16;
      parser->defaults = need(realloc(parser->defaults, parser->default_capacity * sizeof *parser->defaults));
    }
    parser->defaults[parser->default_count++] = (pending_default){field, otherwise, made->name};
  }
  if (is_good && repeated_name(names, made->count, &twice) != NULL) {
    fail_schema(parser, "the record '%.*s' has the field '%.*s' twice", shown_count(made->name), made->name.bytes, shown_count(twice), twice.bytes);
    is_good = false;
  }
  free(names);
  return is_good;
}

static bool parse_symbols(parser *parser, const rxd_value *json, node *made) {
  rxd_value symbols = attribute(parser, json, "symbols");
  if (host->kind(&symbols) != RXD_LIST) return fail_schema(parser, "the enum '%.*s' has no symbols", shown_count(made->name), made->name.bytes) != NULL;
  made->count = host->count(parser->scope, &symbols);
  rxd_text *names = arena_take(parser->arena, made->count * sizeof *names + 1), twice, otherwise = text_attribute(parser, json, "default");
  for (size_t i = 0; i < made->count; i++) {
    rxd_value one = host->element(parser->scope, &symbols, i);
    rxd_text name = host->text(parser->scope, &one);
    if (!is_name(name, false))
      return fail_schema(parser, "the enum '%.*s' has the symbol '%.*s', which is not a name", shown_count(made->name), made->name.bytes, shown_count(name), name.bytes) != NULL;
    names[i] = arena_text(parser->arena, name);
    if (otherwise.bytes != NULL && text_is(otherwise, name)) made->default_symbol = (int64_t)i;
  }
  made->symbols = names;
  if (repeated_name(names, made->count, &twice) != NULL)
    return fail_schema(parser, "the enum '%.*s' has the symbol '%.*s' twice", shown_count(made->name), made->name.bytes, shown_count(twice), twice.bytes) != NULL;
  if (otherwise.bytes != NULL && made->default_symbol < 0)
    return fail_schema(parser, "the default '%.*s' of the enum '%.*s' is none of its symbols", shown_count(otherwise), otherwise.bytes, shown_count(made->name), made->name.bytes) != NULL;
  return true;
}

static const node *parse_type(parser *parser, const rxd_value *json, rxd_text type, rxd_text space, int depth) {
  static const char *const complex[] = {"record", "enum", "fixed", "error", "array", "map"};
  static const avro_type types[] = {AVRO_RECORD, AVRO_ENUM, AVRO_FIXED, AVRO_RECORD, AVRO_ARRAY, AVRO_MAP};
  for (size_t i = 0; i < sizeof complex / sizeof *complex; i++) {
    if (!text_is(type, text_of(complex[i]))) continue;
    node *made = new_node(parser, types[i]);
    if (types[i] == AVRO_ARRAY || types[i] == AVRO_MAP) {
      rxd_value items = attribute(parser, json, types[i] == AVRO_ARRAY ? "items" : "values");
      made->items = parse_node(parser, &items, space, depth + 1);
      return made->items == NULL ? NULL : made;
    }
    rxd_text name = text_attribute(parser, json, "name"), given = text_attribute(parser, json, "namespace");
    if (given.bytes != NULL) space = given;
    if (!is_name(name, true)) return fail_schema(parser, "%s of the schema has the name '%.*s'", complex[i], shown_count(name), name.bytes == NULL ? "" : name.bytes);
    made->name = full_name(parser, name, space);
    if (find_named(parser, made->name) != NULL) return fail_schema(parser, "the schema has '%.*s' twice", shown_count(made->name), made->name.bytes);
    if (!read_aliases(parser, json, true, space_of(made->name), &made->aliases, &made->alias_count)) return NULL;
    if (parser->named_count == parser->named_capacity) {
      parser->named_capacity = parser->named_capacity * 2 + 16;
      parser->named = need(realloc(parser->named, parser->named_capacity * sizeof *parser->named));
    }
    parser->named[parser->named_count++] = made;
    if (types[i] == AVRO_RECORD) return parse_fields(parser, json, made, depth) ? made : NULL;
    if (types[i] == AVRO_ENUM) return parse_symbols(parser, json, made) ? made : NULL;
    rxd_value size = attribute(parser, json, "size");
    if (host->kind(&size) != RXD_INT || host->integer(&size) < 0 || host->integer(&size) > MOST_FIXED)
      return fail_schema(parser, "the size of '%.*s' is not a whole number up to %d", shown_count(made->name), made->name.bytes, MOST_FIXED);
    made->size = (size_t)host->integer(&size);
    read_logical(parser, json, made);
    return made;
  }
  const node *found = parse_name(parser, type, space);
  if (found == NULL || found->type > AVRO_STRING) return found;
  read_logical(parser, json, (node *)found); /* not shared yet, so it may be changed */
  return found;
}

static const node *parse_node(parser *parser, const rxd_value *json, rxd_text space, int depth) {
  if (depth > SCHEMA_DEPTH) return fail_schema(parser, "the schema is nested more deeply than %d levels", SCHEMA_DEPTH);
  switch (host->kind(json)) {
    case RXD_TEXT: return parse_name(parser, host->text(parser->scope, json), space);
    case RXD_LIST: return parse_union(parser, json, space, depth);
    case RXD_OBJECT: {
      rxd_value type = attribute(parser, json, "type");
      if (host->kind(&type) == RXD_TEXT) return parse_type(parser, json, host->text(parser->scope, &type), space, depth);
      if (host->kind(&type) == RXD_OBJECT || host->kind(&type) == RXD_LIST) return parse_node(parser, &type, space, depth + 1);
      return fail_schema(parser, "an object of the schema has no 'type'");
    }
    default: return fail_schema(parser, "a type of the schema is neither a text, an object nor a list");
  }
}

/* ---- The canonical form ---- */

static void put_quoted(output_bytes *output, const char *before, rxd_text text) {
  output_append(output, before, strlen(before));
  output_append(output, "\"", 1);
  output_append(output, text.bytes, text.count); /* names need no escapes */
  output_append(output, "\"", 1);
}

/* `seen`: the named types already written. */
static void put_canonical(output_bytes *output, const node *node, const struct node **seen, size_t *seen_count) {
#define PUT(literal) output_append(output, literal, sizeof literal - 1)
  if (node->type <= AVRO_STRING) {
    put_quoted(output, "", text_of(type_names[node->type]));
    return;
  }
  if (node->name.count > 0) {
    for (size_t i = 0; i < *seen_count; i++)
      if (seen[i] == node) {
        put_quoted(output, "", node->name);
        return;
      }
    seen[(*seen_count)++] = node;
  }
  switch (node->type) {
    case AVRO_UNION:
      PUT("[");
      for (size_t i = 0; i < node->count; i++) {
        if (i > 0) PUT(",");
        put_canonical(output, node->branches[i], seen, seen_count);
      }
      PUT("]");
      break;
    case AVRO_ARRAY: case AVRO_MAP:
      if (node->type == AVRO_ARRAY) PUT("{\"type\":\"array\",\"items\":");
      else PUT("{\"type\":\"map\",\"values\":");
      put_canonical(output, node->items, seen, seen_count);
      PUT("}");
      break;
    case AVRO_FIXED: {
      char size[60];
      put_quoted(output, "{\"name\":", node->name);
      snprintf(size, sizeof size, ",\"type\":\"fixed\",\"size\":%zu}", node->size);
      output_append(output, size, strlen(size));
      break;
    }
    case AVRO_ENUM:
      put_quoted(output, "{\"name\":", node->name);
      PUT(",\"type\":\"enum\",\"symbols\":[");
      for (size_t i = 0; i < node->count; i++) put_quoted(output, i > 0 ? "," : "", node->symbols[i]);
      PUT("]}");
      break;
    default:
      put_quoted(output, "{\"name\":", node->name);
      PUT(",\"type\":\"record\",\"fields\":[");
      for (size_t i = 0; i < node->count; i++) {
        put_quoted(output, i > 0 ? ",{\"name\":" : "{\"name\":", node->fields[i].name);
        PUT(",\"type\":");
        put_canonical(output, node->fields[i].type, seen, seen_count);
        PUT("}");
      }
      PUT("]}");
  }
#undef PUT
}

/* CRC-64-AVRO of the Avro specification. */
uint64_t rabin(const char *bytes, size_t count) {
  const uint64_t empty = 0xc15d213aa4d7a795;
  uint64_t made = empty;
  for (size_t i = 0; i < count; i++) {
    uint64_t step = (made ^ (unsigned char)bytes[i]) & 0xff;
    for (int bit = 0; bit < 8; bit++) step = step >> 1 ^ (empty & -(step & 1));
    made = made >> 8 ^ step;
  }
  return made;
}

avro_schema *parse_schema(rxd_scope *scope, const rxd_value *json, const char *at) {
  avro_schema *made = need(calloc(1, sizeof *made));
  parser parser = {.scope = scope, .arena = &made->arena, .at = at};
  made->root = parse_node(&parser, json, (rxd_text){"", 0}, 0);
  bool is_good = made->root != NULL;
  for (size_t i = 0; i < parser.default_count && is_good; i++) {
    pending_default *one = &parser.defaults[i];
    output_bytes output;
    begin_output(&output);
    is_good = write_value(scope, one->field->type, &one->value, false, true, &output);
    if (is_good) one->field->otherwise = arena_text(&made->arena, (rxd_text){output.bytes, output.count});
    else fail_schema(&parser, "the default of '%.*s.%.*s' does not fit its type", shown_count(one->record), one->record.bytes, shown_count(one->field->name), one->field->name.bytes);
    free_output(&output);
  }
  if (is_good) {
    output_bytes output;
    begin_output(&output);
    const node **seen = need(malloc((parser.named_count + 1) * sizeof *seen));
    size_t seen_count = 0;
    put_canonical(&output, made->root, seen, &seen_count);
    made->fingerprint = rabin(output.bytes, output.count);
    free(seen);
    free_output(&output);
  }
  free(parser.named);
  free(parser.defaults);
  if (is_good) return made;
  free_schema(made);
  return NULL;
}

avro_schema *parse_schema_text(rxd_scope *scope, rxd_text json, const char *at) {
  rxd_value value;
  if (!is_utf8(json.bytes, json.count) || host->parse_json(scope, json, &value) != RXD_OK) {
    fail_at(scope, at, "the schema is not JSON");
    return NULL;
  }
  return parse_schema(scope, &value, at);
}

void free_schema(avro_schema *schema) {
  if (schema == NULL) return;
  arena_free(&schema->arena);
  free(schema);
}
