/* Decodes packets: parts of a type, a length and a body. A part holds for all that follow it until another one replaces it; values and
 * messages are the events. */
#include <math.h>

#include "collectd.h"

enum {
  PART_HOST = 0x0000,
  PART_TIME = 0x0001,
  PART_PLUGIN = 0x0002,
  PART_PLUGIN_INSTANCE = 0x0003,
  PART_TYPE = 0x0004,
  PART_TYPE_INSTANCE = 0x0005,
  PART_VALUES = 0x0006,
  PART_INTERVAL = 0x0007,
  PART_TIME_HIGH = 0x0008,
  PART_INTERVAL_HIGH = 0x0009,
  PART_MESSAGE = 0x0100,
  PART_SEVERITY = 0x0101,
  PART_SIGNATURE = 0x0200,
  PART_ENCRYPTED = 0x0210,
  HEAD = 4,   /* bytes of the type and the length of a part */
  VECTOR = 16,
  FIELD_MOST = 255, /* bytes; collectd takes 127. Each event repeats its fields, so a long one would make much of little */
  CHECKSUM = 20,
};

static const rxd_text member_names[] = {
    RXD_TEXT_OF("host"), RXD_TEXT_OF("plugin"), RXD_TEXT_OF("plugin_instance"), RXD_TEXT_OF("type"), RXD_TEXT_OF("type_instance")};
enum { FIELD_HOST, FIELD_PLUGIN, FIELD_PLUGIN_INSTANCE, FIELD_TYPE, FIELD_TYPE_INSTANCE, FIELDS };

typedef struct packet {
  const reading *how;
  rxd_scope *scope;
  value_stack *events;
  const char *where; /* precedes the byte in reasons */
  security security; /* of the parts that are being read */
  bool is_inner;     /* the parts were encrypted */
  value_stack values, kinds; /* of one part */
  rxd_text fields[FIELDS];
  rxd_value texts[FIELDS];   /* of `fields` */
  const type *type;          /* of the field */
  rxd_value time, interval;  /* absent if `has_time`, `has_interval` are false */
  bool has_time, has_interval;
  uint64_t severity;
} packet;

__attribute__((format(printf, 3, 4))) static int refuse(packet *self, size_t byte, const char *format, ...) {
  char reason[300];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  return fail_at(self->scope, "", "%sbyte %zu: %s", self->where, byte, reason);
}

static uint16_t short_at(const char *bytes) { return (uint16_t)((unsigned char)bytes[0] << 8 | (unsigned char)bytes[1]); }

static uint64_t long_at(const char *bytes) {
  uint64_t value;
  memcpy(&value, bytes, sizeof value);
  return __builtin_bswap64(value);
}

/* ---- Texts and numbers ---- */

static int read_text(packet *self, size_t at, rxd_text body, const char *what, rxd_text *text) {
  if (body.count == 0 || body.bytes[body.count - 1] != 0) return refuse(self, at, "the %s does not end with a zero byte", what);
  *text = (rxd_text){body.bytes, body.count - 1};
  if (text->count > 0 && memchr(text->bytes, 0, text->count) != NULL) return refuse(self, at, "the %s has a zero byte before its end", what);
  return RXD_OK;
}

static int read_field(packet *self, size_t at, rxd_text body, int field) {
  rxd_text text;
  if (read_text(self, at, body, member_names[field].bytes, &text) != RXD_OK) return RXD_FAILED;
  if (text.count > FIELD_MOST) return refuse(self, at, "the %s has %zu bytes, and may have %d", member_names[field].bytes, text.count, FIELD_MOST);
  self->fields[field] = text;
  self->texts[field] = host->make_text(self->scope, text);
  if (field == FIELD_TYPE) self->type = find_type(&self->how->types, text);
  return RXD_OK;
}

/* Splits a number of seconds or, if it is high, of 2^-30 seconds. */
static void split(uint64_t number, bool is_high, uint64_t *seconds, uint32_t *nanoseconds) {
  *seconds = is_high ? number >> 30 : number;
  *nanoseconds = is_high ? (uint32_t)(((number & ((1 << 30) - 1)) * 1000000000 + (1 << 29)) >> 30) : 0;
}

static int read_time_part(packet *self, size_t at, uint64_t number, bool is_high) {
  uint64_t seconds;
  uint32_t nanoseconds;
  split(number, is_high, &seconds, &nanoseconds);
  if (seconds > INT64_MAX || !make_time((int64_t)seconds, nanoseconds, &self->time)) return refuse(self, at, "the time " TIMES_ARE_FROM_TO);
  self->has_time = number != 0;
  return RXD_OK;
}

static int read_interval(packet *self, size_t at, uint64_t number, bool is_high) {
  uint64_t seconds;
  uint32_t nanoseconds;
  split(number, is_high, &seconds, &nanoseconds);
  if (seconds >= INT64_MAX / 1000000000) return refuse(self, at, "the interval is longer than 292 years");
  self->interval = host->make_duration((int64_t)seconds * 1000000000 + nanoseconds);
  self->has_interval = number != 0;
  return RXD_OK;
}

/* ---- Events ---- */

/* The members that values and messages have in common; returns their number. */
static size_t common_members(packet *self, rxd_text *names, rxd_value *values) {
  size_t count = 0;
  for (int i = 0; i < FIELDS; i++) names[count] = member_names[i], values[count++] = self->texts[i];
  if (self->has_time) names[count] = RXD_TEXT_OF("time"), values[count++] = self->time;
  return count;
}

static int check_security(packet *self, size_t at) {
  if (self->security >= self->how->security) return RXD_OK;
  if (self->how->security == SECURITY_ENCRYPT) return refuse(self, at, "the packet is not encrypted, and 'security' is 'encrypt'");
  return refuse(self, at, "the packet is neither signed nor encrypted, and 'security' is 'sign'");
}

/* The name of the value at `index` of `count`: of types.db, or if that has none or another number of them "value", or "0", "1" and so on. */
static rxd_text value_name(const packet *self, size_t index, size_t count, char *room) {
  if (self->type != NULL && self->type->count == count) return self->type->values[index];
  if (count == 1) return RXD_TEXT_OF("value");
  return (rxd_text){room, (size_t)sprintf(room, "%zu", index)};
}

static int read_values(packet *self, size_t at, rxd_text body) {
  static const char *const kinds[] = {"counter", "gauge", "derive", "absolute"};
  enum { NUMBER_ROOM = 8 };
  if (check_security(self, at) != RXD_OK) return RXD_FAILED;
  size_t count = body.count < 2 ? 0 : short_at(body.bytes);
  if (body.count != 2 + count * 9) return refuse(self, at, "the part claims %zu values, and has %zu bytes for them", count, body.count < 2 ? 0 : body.count - 2);
  if (count == 0) return refuse(self, at, "the part has no values");
  for (int i = 0; i < FIELDS; i++)
    if ((i == FIELD_HOST || i == FIELD_PLUGIN || i == FIELD_TYPE) && self->fields[i].count == 0)
      return refuse(self, at, "there are values, and no %s before them", member_names[i].bytes);
  self->values.count = self->kinds.count = 0;
  bool has_names = self->type != NULL && self->type->count == count;
  char *rooms = has_names || count == 1 ? NULL : need(malloc(count * NUMBER_ROOM));
  int status = RXD_OK;
  for (size_t i = 0; i < count && status == RXD_OK; i++) {
    unsigned kind = (unsigned char)body.bytes[2 + i];
    uint64_t bits = long_at(body.bytes + 2 + count + i * 8);
    rxd_value value;
    if (kind == 1) {
      /* Unlike all else, gauges begin with the lowest byte. */
      bits = __builtin_bswap64(bits);
      double number;
      memcpy(&number, &bits, sizeof number);
      value = isnan(number) ? host->make_null() : host->make_double(number);
    } else if (kind == 2) {
      value = host->make_int((int64_t)bits);
    } else if (kind == 0 || kind == 3) {
      value = host->make_uint(bits);
    } else {
      status = refuse(self, at + HEAD + 2 + i, "a value has the unknown kind %u", kind);
      break;
    }
    rxd_text name = value_name(self, i, count, rooms == NULL ? NULL : rooms + i * NUMBER_ROOM);
    push_member(&self->values, name, value);
    push_member(&self->kinds, name, host->make_text(self->scope, text_of(kinds[kind])));
  }
  if (status == RXD_OK) {
    rxd_text names[FIELDS + 4];
    rxd_value members[FIELDS + 4];
    size_t used = common_members(self, names, members);
    if (self->has_interval) names[used] = RXD_TEXT_OF("interval"), members[used++] = self->interval;
    names[used] = RXD_TEXT_OF("values"), members[used++] = pop_object(self->scope, &self->values, 0);
    names[used] = RXD_TEXT_OF("kinds"), members[used++] = pop_object(self->scope, &self->kinds, 0);
    push_value(self->events, host->make_object(self->scope, names, members, used));
  }
  free(rooms);
  return status;
}

static int read_message(packet *self, size_t at, rxd_text body) {
  rxd_text text, names[FIELDS + 3];
  rxd_value members[FIELDS + 3];
  if (check_security(self, at) != RXD_OK || read_text(self, at, body, "message", &text) != RXD_OK) return RXD_FAILED;
  const char *severity = self->severity == 1 ? "failure" : self->severity == 2 ? "warning" : self->severity == 4 ? "okay" : NULL;
  if (severity == NULL) return refuse(self, at, "there is a message, and before it no severity 1, 2 or 4");
  size_t used = common_members(self, names, members);
  names[used] = RXD_TEXT_OF("severity"), members[used++] = host->make_text(self->scope, text_of(severity));
  names[used] = RXD_TEXT_OF("message"), members[used++] = host->make_text(self->scope, text);
  push_value(self->events, host->make_object(self->scope, names, members, used));
  return RXD_OK;
}

/* ---- Signed and encrypted parts ---- */

static const user *user_of(packet *self, size_t at, rxd_text name, const char *what) {
  const user *found = find_user(&self->how->users, name);
  if (found != NULL) return found;
  /* Nobody has vouched for the name. */
  char shown[64];
  size_t count = (size_t)shown_count(name);
  memcpy(shown, name.bytes, count);
  for (size_t i = 0; !is_utf8(shown, count) && i < count; i++)
    if ((unsigned char)shown[i] > 126) shown[i] = '?';
  refuse(self, at, "the packet is %s by the user '%.*s', %s", what, (int)count, shown,
         self->how->has_users ? "whom the file of 'users' does not have" : "and 'users' is not given");
  return NULL;
}

/* A signature is for its user's name and all parts behind it. */
static int read_signature(packet *self, size_t at, rxd_text input, rxd_text body) {
  if (self->is_inner) return refuse(self, at, "a signature is within an encrypted part");
  if (at > 0) return refuse(self, at, "a signature is not the first part, and so not for all of the packet");
  if (body.count <= DIGEST) return refuse(self, at, "the signature has %zu bytes, and no user", body.count);
  const user *by = user_of(self, at, (rxd_text){body.bytes + DIGEST, body.count - DIGEST}, "signed");
  if (by == NULL) return RXD_FAILED;
  rxd_text all = {body.bytes + DIGEST, (size_t)(input.bytes + input.count - (body.bytes + DIGEST))};
  if (!is_signed_by(by, all, (const unsigned char *)body.bytes)) return refuse(self, at, "the signature of the user '%.60s' is wrong", by->name);
  self->security = SECURITY_SIGN;
  return RXD_OK;
}

static int decode_parts(packet *self, rxd_text input);

static int read_encrypted(packet *self, size_t at, rxd_text body) {
  if (self->is_inner) return refuse(self, at, "an encrypted part is within another one");
  size_t length = body.count < 2 ? 0 : short_at(body.bytes);
  if (length == 0 || body.count < 2 + length + VECTOR + CHECKSUM) return refuse(self, at, "the encrypted part has %zu bytes, too few for a user and a checksum", body.count);
  const user *by = user_of(self, at, (rxd_text){body.bytes + 2, length}, "encrypted");
  if (by == NULL) return RXD_FAILED;
  const char *vector = body.bytes + 2 + length;
  rxd_text hidden = {vector + VECTOR, body.count - 2 - length - VECTOR};
  char *plain = need(malloc(hidden.count));
  decrypt_by(by, (const unsigned char *)vector, hidden, plain);
  int status;
  if (!has_checksum(plain, hidden.count)) {
    status = refuse(self, at, "the encrypted part of the user '%.60s' has a wrong checksum: the password is another one, or the packet is damaged", by->name);
  } else {
    packet inner = {.how = self->how, .scope = self->scope, .events = self->events, .where = "in the encrypted part, ", .security = SECURITY_ENCRYPT, .is_inner = true};
    status = decode_parts(&inner, (rxd_text){plain + CHECKSUM, hidden.count - CHECKSUM});
  }
  free(plain);
  return status;
}

/* ---- Parts ---- */

static int read_part(packet *self, size_t at, int part, rxd_text input, rxd_text body) {
  switch (part) {
    case PART_HOST: return read_field(self, at, body, FIELD_HOST);
    case PART_PLUGIN: return read_field(self, at, body, FIELD_PLUGIN);
    case PART_PLUGIN_INSTANCE: return read_field(self, at, body, FIELD_PLUGIN_INSTANCE);
    case PART_TYPE: return read_field(self, at, body, FIELD_TYPE);
    case PART_TYPE_INSTANCE: return read_field(self, at, body, FIELD_TYPE_INSTANCE);
    case PART_VALUES: return read_values(self, at, body);
    case PART_MESSAGE: return read_message(self, at, body);
    case PART_SIGNATURE: return read_signature(self, at, input, body);
    case PART_ENCRYPTED: return read_encrypted(self, at, body);
    case PART_TIME: case PART_TIME_HIGH: case PART_INTERVAL: case PART_INTERVAL_HIGH: case PART_SEVERITY: break;
    default: return RXD_OK; /* the protocol says: ignore unknown parts */
  }
  if (body.count != 8) return refuse(self, at, "a number has %zu bytes, and must have 8", body.count);
  uint64_t number = long_at(body.bytes);
  if (part == PART_SEVERITY) return self->severity = number, RXD_OK;
  bool is_high = part == PART_TIME_HIGH || part == PART_INTERVAL_HIGH;
  return part == PART_TIME || part == PART_TIME_HIGH ? read_time_part(self, at, number, is_high) : read_interval(self, at, number, is_high);
}

static int decode_parts(packet *self, rxd_text input) {
  for (int i = 0; i < FIELDS; i++) self->texts[i] = host->make_text(self->scope, (rxd_text){"", 0});
  int status = RXD_OK;
  for (size_t at = 0; at < input.count && status == RXD_OK;) {
    size_t left = input.count - at;
    if (left < HEAD) {
      status = refuse(self, at, "the packet ends within the head of a part");
      break;
    }
    int part = short_at(input.bytes + at);
    size_t length = short_at(input.bytes + at + 2);
    if (length < HEAD) status = refuse(self, at, "a part claims a length of %zu bytes, and its head alone has %d", length, HEAD);
    else if (length > left) status = refuse(self, at, "a part claims %zu bytes, and the packet has %zu more", length, left);
    else status = read_part(self, at, part, input, (rxd_text){input.bytes + at + HEAD, length - HEAD});
    at += length;
  }
  free_values(&self->values);
  free_values(&self->kinds);
  return status;
}

int decode_packet(const reading *how, rxd_scope *scope, rxd_text input, value_stack *events) {
  packet self = {.how = how, .scope = scope, .events = events, .where = ""};
  return decode_parts(&self, input);
}
