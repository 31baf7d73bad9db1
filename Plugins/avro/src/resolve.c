/* Schema resolution: plans for reading data of the writer's schema as the reader's schema. */
#include "avro_format.h"

/* The plans made so far; recursive schemas refer to them. */
typedef struct memo {
  const node *writer, *reader;
  plan *plan;
  struct memo *next;
} memo;

#define BUCKETS 256

typedef struct {
  arena *arena;
  arena scratch;
  memo *memos[BUCKETS];
} resolver;

static const plan *resolve(resolver *resolver, const node *writer, const node *reader);

__attribute__((format(printf, 2, 3)))
static const char *problem(resolver *resolver, const char *format, ...) {
  char message[300];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return arena_text(resolver->arena, text_of(message)).bytes;
}

static rxd_text unqualified(rxd_text name) {
  const char *dot = name.count == 0 ? NULL : memrchr(name.bytes, '.', name.count);
  return dot == NULL ? name : (rxd_text){dot + 1, name.count - (size_t)(dot + 1 - name.bytes)};
}

static bool names_fit(const node *writer, const node *reader) {
  if (text_is(unqualified(writer->name), unqualified(reader->name))) return true;
  for (size_t i = 0; i < reader->alias_count; i++)
    if (text_is(reader->aliases[i], writer->name)) return true;
  return false;
}

/* Whether both have the same type and, if named, the same name. */
static bool is_same_type(const node *writer, const node *reader) {
  if (writer->type != reader->type) return false;
  if (writer->type == AVRO_FIXED) return writer->size == reader->size && names_fit(writer, reader);
  return (writer->type != AVRO_RECORD && writer->type != AVRO_ENUM) || names_fit(writer, reader);
}

static bool is_promoted(avro_type writer, avro_type reader) {
  switch (writer) {
    case AVRO_INT: return reader == AVRO_LONG || reader == AVRO_FLOAT || reader == AVRO_DOUBLE;
    case AVRO_LONG: return reader == AVRO_FLOAT || reader == AVRO_DOUBLE;
    case AVRO_FLOAT: return reader == AVRO_DOUBLE;
    case AVRO_STRING: return reader == AVRO_BYTES;
    case AVRO_BYTES: return reader == AVRO_STRING;
    default: return false;
  }
}

static void shown(const node *node, char *text, size_t capacity) {
  if (node->name.count > 0) snprintf(text, capacity, "%s %.*s", type_name(node->type), shown_count(node->name), node->name.bytes);
  else snprintf(text, capacity, "%s", type_name(node->type));
}

static const record_field *written_field(const node *writer, const record_field *field) {
  for (size_t i = 0; i < writer->count; i++)
    if (text_is(writer->fields[i].name, field->name)) return &writer->fields[i];
  for (size_t j = 0; j < field->alias_count; j++)
    for (size_t i = 0; i < writer->count; i++)
      if (text_is(writer->fields[i].name, field->aliases[j])) return &writer->fields[i];
  return NULL;
}

static void resolve_record(resolver *resolver, plan *made) {
  const node *writer = made->writer, *reader = made->reader;
  plan_step *steps = arena_take(resolver->arena, writer->count * sizeof *steps + 1), *defaults = arena_take(resolver->arena, reader->count * sizeof *defaults + 1);
  for (size_t i = 0; i < writer->count; i++) steps[i].skipped = writer->fields[i].type;
  for (size_t i = 0; i < reader->count; i++) {
    const record_field *field = &reader->fields[i], *written = writer == reader ? field : written_field(writer, field);
    if (written != NULL) {
      plan_step *step = &steps[written - writer->fields];
      step->plan = resolve(resolver, written->type, field->type);
      step->index = (uint32_t)i;
    } else if (field->has_default) {
      defaults[made->default_count++] = (plan_step){.plan = resolve(resolver, field->type, field->type), .index = (uint32_t)i};
    } else {
      made->problem = problem(resolver, "the writer's record %.*s has no field '%.*s', and the reader's has no default", shown_count(writer->name), writer->name.bytes,
                              shown_count(field->name), field->name.bytes);
      return;
    }
  }
  made->steps = steps;
  made->defaults = defaults;
}

static void resolve_symbols(resolver *resolver, plan *made) {
  int32_t *symbols = arena_take(resolver->arena, made->writer->count * sizeof *symbols + 1);
  for (size_t i = 0; i < made->writer->count; i++) {
    symbols[i] = (int32_t)made->reader->default_symbol;
    for (size_t j = 0; j < made->reader->count; j++)
      if (text_is(made->writer->symbols[i], made->reader->symbols[j])) symbols[i] = (int32_t)j;
  }
  made->symbols = symbols;
}

static void fill_plan(resolver *resolver, plan *made) {
  const node *writer = made->writer, *reader = made->reader;
  if (writer->type == AVRO_UNION) {
    made->children = arena_take(resolver->arena, writer->count * sizeof *made->children + 1);
    for (size_t i = 0; i < writer->count; i++) made->children[i] = resolve(resolver, writer->branches[i], writer == reader ? reader->branches[i] : reader);
    return;
  }
  if (reader->type == AVRO_UNION) {
    const node *found = NULL;
    for (size_t i = 0; i < reader->count && found == NULL; i++)
      if (is_same_type(writer, reader->branches[i])) found = reader->branches[i];
    for (size_t i = 0; i < reader->count && found == NULL; i++)
      if (is_promoted(writer->type, reader->branches[i]->type)) found = reader->branches[i];
    if (found != NULL) {
      made->reader = reader = found;
    } else {
      char ours[100];
      shown(writer, ours, sizeof ours);
      made->problem = problem(resolver, "the writer's %s fits no branch of the reader's union", ours);
      return;
    }
  }
  if (!is_same_type(writer, reader) && !is_promoted(writer->type, reader->type)) {
    char ours[100], theirs[100];
    shown(writer, ours, sizeof ours);
    shown(reader, theirs, sizeof theirs);
    made->problem = problem(resolver, "the writer's %s does not fit the reader's %s", ours, theirs);
    return;
  }
  switch (writer->type) {
    case AVRO_RECORD: resolve_record(resolver, made); break;
    case AVRO_ENUM: resolve_symbols(resolver, made); break;
    case AVRO_ARRAY: case AVRO_MAP:
      made->children = arena_take(resolver->arena, sizeof *made->children);
      made->children[0] = resolve(resolver, writer->items, reader->items);
      break;
    default: break;
  }
}

static const plan *resolve(resolver *resolver, const node *writer, const node *reader) {
  size_t bucket = (((uintptr_t)writer >> 4) * 31 + ((uintptr_t)reader >> 4)) % BUCKETS;
  for (const memo *one = resolver->memos[bucket]; one != NULL; one = one->next)
    if (one->writer == writer && one->reader == reader) return one->plan;
  plan *made = arena_take(resolver->arena, sizeof *made);
  memo *one = arena_take(&resolver->scratch, sizeof *one);
  *one = (memo){writer, reader, made, resolver->memos[bucket]};
  resolver->memos[bucket] = one;
  made->writer = writer;
  made->reader = reader;
  fill_plan(resolver, made);
  return made;
}

const plan *make_plan(arena *arena, const node *writer, const node *reader) {
  resolver *resolver = need(calloc(1, sizeof *resolver));
  resolver->arena = arena;
  const plan *made = resolve(resolver, writer, reader);
  arena_free(&resolver->scratch);
  free(resolver);
  return made;
}
