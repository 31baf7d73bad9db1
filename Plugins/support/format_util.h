/* Helpers for plugins that decode and encode binary formats: building values, output, unsigned 64-bit integers, times.
 * Header only, C11. */
#ifndef FORMAT_UTIL_H
#define FORMAT_UTIL_H
#include <stdint.h>

#include "plugin_util.h"

/* The maximum nesting of lists and objects, in input and in output, so that all output can be read. */
#define DEPTH_LIMIT 128

/* ---- Values under construction ---- */

/* The members of all incomplete lists and objects, innermost last. It grows with the data in the input, never by the
 * lengths that the input claims. */
typedef struct {
  rxd_value *values;
  rxd_text *names; /* names of members of objects */
  size_t count, capacity, name_capacity;
} value_stack;

static inline UNUSED void push_value(value_stack *stack, rxd_value value) {
  if (stack->count == stack->capacity) {
    stack->capacity = stack->capacity == 0 ? 64 : stack->capacity * 2;
    stack->values = need(realloc(stack->values, stack->capacity * sizeof *stack->values));
  }
  stack->values[stack->count++] = value;
}

static inline UNUSED void push_member(value_stack *stack, rxd_text name, rxd_value value) {
  push_value(stack, value);
  if (stack->name_capacity < stack->count) {
    stack->name_capacity = stack->capacity;
    stack->names = need(realloc(stack->names, stack->name_capacity * sizeof *stack->names));
  }
  stack->names[stack->count - 1] = name;
}

static inline UNUSED void free_values(value_stack *stack) {
  free(stack->values);
  free(stack->names);
  *stack = (value_stack){0};
}

/* Pops all values from `start` on and returns them as a list. */
static inline UNUSED rxd_value pop_list(rxd_scope *scope, value_stack *stack, size_t start) {
  rxd_value made = host->make_list(scope, stack->values + start, stack->count - start);
  stack->count = start;
  return made;
}

static inline int compare_names(const void *a, const void *b) {
  const rxd_text *left = a, *right = b;
  if (left->count != right->count) return left->count < right->count ? -1 : 1;
  return left->count == 0 ? 0 : memcmp(left->bytes, right->bytes, left->count);
}

/* The second of two equal names, or NULL. Sorts long lists, so that no input makes it slow. */
static inline UNUSED const char *repeated_name(const rxd_text *names, size_t count, rxd_text *which) {
  if (count <= 12) {
    for (size_t i = 1; i < count; i++)
      for (size_t j = 0; j < i; j++)
        if (text_is(names[i], names[j])) return *which = names[i], names[i].bytes;
    return NULL;
  }
  rxd_text *sorted = need(malloc(count * sizeof *sorted));
  memcpy(sorted, names, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, compare_names);
  const char *found = NULL;
  for (size_t i = 1; i < count && found == NULL; i++) {
    if (!text_is(sorted[i], sorted[i - 1])) continue;
    *which = sorted[i];
    found = sorted[i].bytes > sorted[i - 1].bytes ? sorted[i].bytes : sorted[i - 1].bytes;
  }
  free(sorted);
  return found;
}

/* Pops all values from `start` on and returns them as an object. */
static inline UNUSED rxd_value pop_object(rxd_scope *scope, value_stack *stack, size_t start) {
  static const rxd_text no_name;
  static const rxd_value no_value;
  size_t count = stack->count - start;
  stack->count = start;
  return count == 0 ? host->make_object(scope, &no_name, &no_value, 0)
                    : host->make_object(scope, stack->names + start, stack->values + start, count);
}

/* ---- Output ---- */

typedef struct {
  char *bytes;
  size_t count, capacity;
  char first[1024];
} output_bytes;

static inline UNUSED void begin_output(output_bytes *output) {
  output->bytes = output->first;
  output->count = 0;
  output->capacity = sizeof output->first;
}

/* Reserves `more` bytes at the end. */
static inline UNUSED char *output_room(output_bytes *output, size_t more) {
  if (output->capacity - output->count < more) {
    size_t capacity = output->capacity * 2;
    if (capacity - output->count < more) capacity = output->count + more;
    char *longer = need(realloc(output->bytes == output->first ? NULL : output->bytes, capacity));
    if (output->bytes == output->first) memcpy(longer, output->first, output->count);
    output->bytes = longer;
    output->capacity = capacity;
  }
  return output->bytes + output->count;
}

static inline UNUSED void output_append(output_bytes *output, const char *bytes, size_t count) {
  if (count == 0) return;
  memcpy(output_room(output, count), bytes, count);
  output->count += count;
}

static inline UNUSED void free_output(output_bytes *output) {
  if (output->bytes != output->first) free(output->bytes);
}

/* ---- Times ---- */

/* The text of a time or a duration as the encoder `json` writes it, without quotes. */
static inline UNUSED rxd_text plain_text(rxd_scope *scope, const rxd_value *value) {
  rxd_text json = host->json(scope, value);
  if (json.count >= 2 && json.bytes[0] == '"') return (rxd_text){json.bytes + 1, json.count - 2};
  return json;
}

/* The number at `*at`, of exactly `digits` digits; -1 if there is none. */
static inline int digits_at(const char **at, const char *end, int digits) {
  int number = 0;
  if (end - *at < digits) return -1;
  for (int i = 0; i < digits; i++, ++*at) {
    if (!isdigit((unsigned char)**at)) return -1;
    number = number * 10 + (**at - '0');
  }
  return number;
}

static inline bool skip_one(const char **at, const char *end, const char *of) {
  if (*at == end || **at == 0 || strchr(of, **at) == NULL) return false;
  ++*at;
  return true;
}

/* Parses an RFC 3339 time as seconds since 1970; digits after the ninth of a fraction are dropped. */
static inline UNUSED bool parse_time(rxd_text text, int64_t *seconds, uint32_t *nanoseconds) {
  static const int days_before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
  const char *at = text.bytes, *end = at + text.count;
  if (text.count == 0) return false;
  int year = digits_at(&at, end, 4);
  if (year < 0 || !skip_one(&at, end, "-")) return false;
  int month = digits_at(&at, end, 2);
  if (month < 1 || month > 12 || !skip_one(&at, end, "-")) return false;
  int day = digits_at(&at, end, 2);
  bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  int length = days_before[month] - days_before[month - 1] + (month == 2 && is_leap);
  if (day < 1 || day > length || !skip_one(&at, end, "Tt ")) return false;
  int hour = digits_at(&at, end, 2);
  if (hour < 0 || hour > 23 || !skip_one(&at, end, ":")) return false;
  int minute = digits_at(&at, end, 2);
  if (minute < 0 || minute > 59 || !skip_one(&at, end, ":")) return false;
  int second = digits_at(&at, end, 2);
  if (second < 0 || second > 59) return false;
  *nanoseconds = 0;
  if (skip_one(&at, end, ".")) {
    if (at == end || !isdigit((unsigned char)*at)) return false;
    for (uint32_t unit = 100000000; at < end && isdigit((unsigned char)*at); at++, unit /= 10)
      *nanoseconds += (uint32_t)(*at - '0') * unit;
  }
  int shift = 0;
  if (!skip_one(&at, end, "Zz")) {
    if (at == end || (*at != '+' && *at != '-')) return false;
    int sign = *at++ == '-' ? -1 : 1;
    int hours = digits_at(&at, end, 2);
    if (hours < 0 || hours > 23 || !skip_one(&at, end, ":")) return false;
    int minutes = digits_at(&at, end, 2);
    if (minutes < 0 || minutes > 59) return false;
    shift = sign * (hours * 60 + minutes) * 60;
  }
  if (at != end) return false;
  int64_t before = year == 0 ? -1 : year - 1; /* whole years; the year 0 is a leap year */
  int64_t leaps = year == 0 ? -1 : before / 4 - before / 100 + before / 400;
  int64_t days = before * 365 + leaps + days_before[month - 1] + (month > 2 && is_leap) + day - 1 - 719162;
  *seconds = ((days * 24 + hour) * 60 + minute) * 60 + second - shift;
  return true;
}

/* The seconds and nanoseconds of an RXD_TIMESTAMP. `integer` wraps outside the years 1677 to 2262, whose text is parsed
 * instead. */
static inline UNUSED bool time_of(rxd_scope *scope, const rxd_value *value, int64_t *seconds, uint32_t *nanoseconds) {
  int64_t all = host->integer(value);
  rxd_value again = host->make_timestamp(all);
  if (memcmp(&again, value, sizeof again) != 0) return parse_time(plain_text(scope, value), seconds, nanoseconds);
  *seconds = all / 1000000000;
  int64_t rest = all % 1000000000;
  if (rest < 0) rest += 1000000000, --*seconds;
  *nanoseconds = (uint32_t)rest;
  return true;
}

#define TIMES_ARE_FROM_TO "is not between 1677-09-21 and 2262-04-11"

/* False: the time is out of the host's range; see TIMES_ARE_FROM_TO. */
static inline UNUSED bool make_time(int64_t seconds, uint32_t nanoseconds, rxd_value *value) {
  int64_t all;
  if (__builtin_mul_overflow(seconds, (int64_t)1000000000, &all)) {
    /* The first second is only partly representable in 64 bits. */
    if (seconds != INT64_MIN / 1000000000 - 1) return false;
    if (__builtin_mul_overflow(seconds + 1, (int64_t)1000000000, &all)) return false;
    if (__builtin_add_overflow(all, (int64_t)nanoseconds - 1000000000, &all)) return false;
  } else if (__builtin_add_overflow(all, (int64_t)nanoseconds, &all)) {
    return false;
  }
  *value = host->make_timestamp(all);
  return true;
}

#define FIRST_SECOND (-62135596800) /* 0001-01-01 */
#define LAST_SECOND 253402300799    /* 9999-12-31T23:59:59 */

/* Formats a time of the years 1 to 9999 as RFC 3339, with a fraction only if there are nanoseconds. `text`: at least 40
 * bytes. */
static inline UNUSED void rfc3339_text(int64_t seconds, int64_t nanoseconds, char *text) {
  int64_t days = seconds / 86400, rest = seconds % 86400;
  if (rest < 0) rest += 86400, days--;
  int64_t shifted = days + 719468, era = shifted / 146097, day_of_era = shifted % 146097; /* from 0000-03-01 */
  int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100), month = (5 * day_of_year + 2) / 153;
  int64_t day = day_of_year - (153 * month + 2) / 5 + 1, year = year_of_era + era * 400 + (month >= 10);
  int used = snprintf(text, 40, "%04d-%02d-%02dT%02d:%02d:%02d", (int)year, (int)(month < 10 ? month + 3 : month - 9), (int)day, (int)(rest / 3600),
                      (int)(rest / 60 % 60), (int)(rest % 60));
  if (nanoseconds != 0) used += snprintf(text + used, 40 - (size_t)used, ".%09d", (int)nanoseconds);
  snprintf(text + used, 40 - (size_t)used, "Z");
}

/* ---- Reasons ---- */

/* The part of a name for a message: at most 60 bytes, whole characters. */
static inline UNUSED int shown_count(rxd_text name) {
  size_t count = name.count < 60 ? name.count : 60;
  while (count < name.count && count > 0 && ((unsigned char)name.bytes[count] & 0xc0) == 0x80) count--;
  return (int)count;
}

/* ---- Components ---- */

#define NAMED(kind_, name_) .size = sizeof(rxd_component), .kind = {kind_, sizeof kind_ - 1}, .name = {name_, sizeof name_ - 1}

/* The name of a kind of values, for messages. */
static inline UNUSED const char *value_kind(int kind) {
  switch (kind) {
    case RXD_NULL: return "null";
    case RXD_BOOL: return "a boolean";
    case RXD_INT: case RXD_UINT: return "a whole number";
    case RXD_DOUBLE: return "a number";
    case RXD_TEXT: return "a text";
    case RXD_BYTES: return "bytes";
    case RXD_LIST: return "a list";
    case RXD_OBJECT: return "an object";
    case RXD_TIMESTAMP: return "a time";
    case RXD_DURATION: return "a duration";
    default: return "another value";
  }
}

/* Decodes bytes within the event by a decoder, and stores the first value in the member `into`. Null and absent bytes
 * change nothing. */
static inline UNUSED int decode_within(
    rxd_scope *scope, rxd_value *event, const rxd_value *bytes,
    int (*decode_row)(void *, rxd_scope *, rxd_value *, const rxd_value *), void *instance, rxd_text into) {
  int kind = host->kind(bytes);
  if (kind == RXD_NULL || kind == RXD_ABSENT) return RXD_OK;
  if (kind != RXD_BYTES) return fail_at(scope, "", "the value of 'bytes' is not bytes");
  if (host->kind(event) != RXD_OBJECT) return fail_at(scope, "", "the event is not an object");
  rxd_value decoded = *bytes;
  if (decode_row(instance, scope, &decoded, NULL) != RXD_OK) return RXD_FAILED;
  decoded = host->element(scope, &decoded, 0);
  *event = host->with_member(scope, event, into, &decoded);
  return RXD_OK;
}
#endif
