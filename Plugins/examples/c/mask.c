/* mask: an rxd plugin in C without libraries, a program that speaks the line protocol.
 *
 *   - mask: 12        # in texts of the event, digits in a row from this number on become *, except for the last four
 *
 * It never builds a tree: an event is copied from the input to the output, and digits are replaced on the way. Many lines are read
 * at once and answered with one write; that is where the speed comes from. Numbers of JSON stay as they are. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FRAME_BYTES = 16 << 20, KEPT_DIGITS = 4, INSTANCES = 64 };

/* ---- Bytes that grow ---- */

typedef struct {
  char *bytes;
  size_t count, capacity;
} buffer;

static char *room(buffer *b, size_t more) {
  if (b->capacity - b->count < more) {
    b->capacity = (b->count + more) * 2;
    b->bytes = realloc(b->bytes, b->capacity);
    if (!b->bytes) {
      fputs("mask: out of memory\n", stderr);
      exit(1);
    }
  }
  return b->bytes + b->count;
}

static void add(buffer *b, const char *bytes, size_t count) {
  memcpy(room(b, count), bytes, count);
  b->count += count;
}

#define ADD(b, literal) add(b, literal, sizeof(literal) - 1)

static void add_number(buffer *b, unsigned long long value) {
  char text[24];
  add(b, text, (size_t)snprintf(text, sizeof text, "%llu", value));
}

/* ---- Frames. rxd writes valid JSON with the naming member first and no spaces. ---- */

typedef struct {
  const char *at, *end;
} slice;

/* The end of the string that begins at `at`. */
static const char *skip_string(const char *at, const char *end) {
  for (at++; at < end && *at != '"'; at++)
    if (*at == '\\') at++;
  return at < end ? at + 1 : end;
}

/* The end of the value that begins at `at`. */
static const char *skip_value(const char *at, const char *end) {
  int depth = 0;
  while (at < end) {
    if (*at == '"') {
      at = skip_string(at, end);
      if (depth == 0) return at;
      continue;
    }
    if (*at == '{' || *at == '[') depth++;
    if ((*at == '}' || *at == ']') && --depth == 0) return at + 1;
    if (*at == ',' && depth == 0) return at;
    at++;
  }
  return end;
}

/* The value of a member of the object; empty if there is none. */
static slice member(slice object, const char *name) {
  const size_t length = strlen(name);
  const char *at = object.at + 1, *end = object.end - 1; /* inside the braces */
  while (at < end && *at == '"') {
    const char *key = at + 1, *value = skip_string(at, end) + 1;
    const char *behind = skip_value(value, end);
    if ((size_t)(value - 2 - key) == length && memcmp(key, name, length) == 0) return (slice){value, behind};
    at = behind < end ? behind + 1 : end;
  }
  return (slice){NULL, NULL};
}

static unsigned long long number(slice value) {
  unsigned long long result = 0;
  for (const char *at = value.at; at && at < value.end && *at >= '0' && *at <= '9'; at++) result = result * 10 + (unsigned)(*at - '0');
  return result;
}

/* ---- The operator ---- */

static const char spec[] =
    "{\"spec\":{\"plugin\":\"mask\",\"version\":\"1.0.0\",\"summary\":\"Masks numbers of cards and accounts in texts.\",\"components\":[{"
    "\"kind\":\"operator\",\"name\":\"mask\",\"summary\":\"Masks long rows of digits in the texts of an event, except for the last four.\","
    "\"parameters\":[{\"name\":\"digits\",\"type\":\"integer\",\"primary\":true,\"default\":12,\"minimum\":5,\"maximum\":64,"
    "\"help\":\"How many digits in a row are masked, at least.\"}],"
    "\"examples\":[{\"title\":\"cards and accounts\",\"yaml\":\"mask: 9\"}]}]}}\n";

static size_t digits_of[INSTANCES]; /* of each instance, by its number */

/* Copies the event and masks digits in its texts; names of members stay unchanged. */
static void mask(buffer *out, slice event, size_t least) {
  const char *at = event.at;
  char *to = room(out, (size_t)(event.end - event.at));
  while (at < event.end) {
    const char *quote = memchr(at, '"', (size_t)(event.end - at));
    if (!quote) quote = event.end;
    memcpy(to, at, (size_t)(quote - at));
    to += quote - at;
    if (quote == event.end) break;
    const char *behind = skip_string(quote, event.end);
    memcpy(to, quote, (size_t)(behind - quote));
    if (behind < event.end && *behind == ':') { /* it was a name */
      to += behind - quote;
      at = behind;
      continue;
    }
    size_t row = 0;
    for (const char *c = quote; c < behind; c++, to++) {
      if (*c >= '0' && *c <= '9') {
        row++;
        continue;
      }
      if (row >= least) memset(to - row, '*', row - KEPT_DIGITS);
      row = 0;
      if (*c == '\\') { /* the digits of an escape are not part of the text */
        long skipped = c + 1 < behind && c[1] == 'u' ? 5 : 1;
        if (skipped >= behind - c) skipped = behind - c - 1;
        c += skipped;
        to += skipped;
      }
    }
    at = behind;
  }
  out->count = (size_t)(to - out->bytes);
}

static void receive(slice frame, buffer *out) {
  static const slice none = {NULL, NULL};
  const char kind = frame.end - frame.at > 3 ? frame.at[2] : 0; /* of the first member */
  if (kind == 'i') { /* id: an input */
    const slice id = member(frame, "id"), event = member(frame, "event");
    const unsigned long long to = number(member(frame, "to"));
    ADD(out, "{\"id\":");
    add(out, id.at, (size_t)(id.end - id.at));
    if (event.at) {
      ADD(out, ",\"events\":[");
      mask(out, event, digits_of[to % INSTANCES]);
      ADD(out, "]");
    }
    ADD(out, "}\n"); /* complete: no events */
  } else if (kind == 'h') { /* hello */
    add(out, spec, sizeof spec - 1);
  } else if (kind == 'o') { /* open */
    const unsigned long long instance = number(member(frame, "open"));
    const slice parameters = member(frame, "parameters");
    const slice digits = parameters.at ? member(parameters, "digits") : none;
    digits_of[instance % INSTANCES] = digits.at ? (size_t)number(digits) : 12;
    ADD(out, "{\"opened\":");
    add_number(out, instance);
    ADD(out, "}\n");
  } else if (kind == 'p') { /* ping */
    ADD(out, "{\"pong\":");
    add_number(out, number(member(frame, "ping")));
    ADD(out, "}\n");
  }
}

/* ---- Streams ---- */

static void write_all(buffer *out) {
  for (size_t done = 0; done < out->count;) {
    const ssize_t count = write(STDOUT_FILENO, out->bytes + done, out->count - done);
    if (count < 0 && errno != EINTR) exit(0); /* rxd is gone */
    if (count > 0) done += (size_t)count;
  }
  out->count = 0;
}

int main(void) {
  buffer in = {0}, out = {0};
  for (;;) {
    const size_t before = in.count;
    const ssize_t count = read(STDIN_FILENO, room(&in, 1 << 16), 1 << 16);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    in.count += (size_t)count;
    char *line = in.bytes, *feed, *from = in.bytes + before;
    while ((feed = memchr(from, '\n', (size_t)(in.bytes + in.count - from)))) {
      receive((slice){line, feed}, &out);
      line = from = feed + 1;
    }
    write_all(&out);
    in.count -= (size_t)(line - in.bytes);
    memmove(in.bytes, line, in.count);
    if (in.count > FRAME_BYTES) return 1;
  }
  free(in.bytes);
  free(out.bytes);
  return 0;
}
