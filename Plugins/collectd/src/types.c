/* Reads types.db: a line is the name of a type, and its values as NAME:KIND:MINIMUM:MAXIMUM, with commas or blanks between them. */
#include "collectd.h"

static size_t hash_of(rxd_text name) {
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < name.count; i++) hash = (hash ^ (unsigned char)name.bytes[i]) * 1099511628211u;
  return (size_t)hash;
}

/* The slot that has the name, or the free one where it belongs. */
static type *slot_of(const types *in, rxd_text name) {
  for (size_t at = hash_of(name);; at++) {
    type *slot = &in->all[at & (in->capacity - 1)];
    if (slot->name == NULL || text_is(name, text_of(slot->name))) return slot;
  }
}

const type *find_type(const types *in, rxd_text name) {
  if (in->count == 0) return NULL;
  const type *slot = slot_of(in, name);
  return slot->name == NULL ? NULL : slot;
}

static void free_type(type *one) {
  for (size_t i = 0; i < one->count; i++) free((char *)(uintptr_t)one->values[i].bytes);
  free(one->values);
  free(one->name);
}

void free_types(types *them) {
  for (size_t i = 0; i < them->capacity; i++) free_type(&them->all[i]);
  free(them->all);
  *them = (types){0};
}

static void add_type(types *to, type added) {
  if (to->count * 2 >= to->capacity) {
    types longer = {.capacity = to->capacity == 0 ? 1024 : to->capacity * 2, .count = to->count};
    longer.all = need(calloc(longer.capacity, sizeof *longer.all));
    for (size_t i = 0; i < to->capacity; i++)
      if (to->all[i].name != NULL) *slot_of(&longer, text_of(to->all[i].name)) = to->all[i];
    free(to->all);
    *to = longer;
  }
  type *slot = slot_of(to, text_of(added.name));
  if (slot->name == NULL) to->count++;
  else free_type(slot);
  *slot = added;
}

/* Takes the next word from `*at`; "" at the end. */
static char *next_word(char **at) {
  *at += strspn(*at, " \t\r\n,");
  char *word = *at;
  *at += strcspn(*at, " \t\r\n,");
  if (**at != 0) *(*at)++ = 0;
  return word;
}

static bool is_value(const char *word, size_t *length) {
  static const char *const kinds[] = {":GAUGE:", ":COUNTER:", ":DERIVE:", ":ABSOLUTE:"};
  const char *colon = strchr(word, ':');
  *length = colon == NULL ? 0 : (size_t)(colon - word);
  for (size_t i = 0; *length > 0 && i < sizeof kinds / sizeof kinds[0]; i++)
    if (strncasecmp(colon, kinds[i], strlen(kinds[i])) == 0) return strchr(colon + strlen(kinds[i]), ':') != NULL;
  return false;
}

const char *read_types(const char *path, types *to, char *problem, size_t capacity) {
  FILE *file = fopen(path, "r");
  if (file == NULL) {
    snprintf(problem, capacity, "cannot read '%.200s': %s", path, strerror(errno));
    return problem;
  }
  char *line = NULL;
  size_t room = 0, number = 0;
  bool is_right = true;
  ssize_t read;
  while (is_right && (read = getline(&line, &room, file)) >= 0) {
    number++;
    char *at = line, *name = next_word(&at), *word;
    if (*name == 0 || *name == '#') continue;
    type added = {.name = copy_text(text_of(name))};
    size_t length, places = 0;
    is_right = strlen(line) <= (size_t)read && is_utf8(name, strlen(name));
    while (is_right && *(word = next_word(&at)) != 0) {
      is_right = is_value(word, &length) && is_utf8(word, length) && added.count < 1000;
      if (!is_right) break;
      if (added.count == places) added.values = need(realloc(added.values, (places = places * 2 + 4) * sizeof *added.values));
      added.values[added.count++] = (rxd_text){copy_text((rxd_text){word, length}), length};
    }
    for (size_t i = 1; i < added.count && is_right; i++)
      for (size_t j = 0; j < i; j++) is_right = is_right && !text_is(added.values[i], added.values[j]);
    is_right = is_right && added.count > 0;
    if (is_right) add_type(to, added);
    else free_type(&added);
  }
  bool has_failed = ferror(file) != 0;
  free(line);
  fclose(file);
  if (!has_failed && is_right) return NULL;
  if (has_failed) snprintf(problem, capacity, "cannot read '%.200s'", path);
  else snprintf(problem, capacity, "'%.200s', line %zu: a line must be the name of a type and values such as 'rx:DERIVE:0:U', each with another name", path, number);
  return problem;
}
