/* Message types as tables for the decoder and the encoder, made from descriptors by libprotobuf. They do not change once they are made, so all
 * threads read them. */
#ifndef SCHEMA_H
#define SCHEMA_H
#include <rxd_plugin.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers of FieldDescriptorProto.Type. */
typedef enum {
  FIELD_DOUBLE = 1, FIELD_FLOAT, FIELD_INT64, FIELD_UINT64, FIELD_INT32, FIELD_FIXED64, FIELD_FIXED32, FIELD_BOOL, FIELD_STRING, FIELD_GROUP,
  FIELD_MESSAGE, FIELD_BYTES, FIELD_UINT32, FIELD_ENUM, FIELD_SFIXED32, FIELD_SFIXED64, FIELD_SINT32, FIELD_SINT64
} field_kind;

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_GROUP = 3, WIRE_END_GROUP = 4, WIRE_32 = 5 };

/* Well-known messages, which are not objects of their fields in events. */
typedef enum {
  KNOWN_NONE, KNOWN_TIMESTAMP, KNOWN_DURATION, KNOWN_WRAPPER, KNOWN_STRUCT, KNOWN_VALUE, KNOWN_LIST, KNOWN_ANY, KNOWN_MASK
} known_type;

typedef struct enum_value {
  rxd_text name;
  int32_t number;
} enum_value;

typedef struct enumeration {
  rxd_text name;
  const enum_value *by_number; /* one for each number, with the first of its names */
  uint32_t number_count;
  const enum_value *by_name;
  uint32_t name_count;
  bool is_closed; /* proto2: other numbers are unknown fields */
  bool is_null;   /* google.protobuf.NullValue */
} enumeration;

typedef struct message_type message_type;

typedef struct field_type {
  uint32_t number;
  uint8_t kind; /* field_kind */
  uint8_t wire; /* wire type of a single value */
  bool is_repeated, is_map, is_packed, has_presence, is_required, can_pack;
  int32_t oneof; /* -1: not in a oneof */
  rxd_text name;  /* name in events */
  rxd_text other; /* another name that the encoder accepts, possibly the same */
  const message_type *message;
  const enumeration *enumeration;
  union {
    int64_t integer; /* also of booleans and enumerations */
    uint64_t number;
    double real;
    rxd_text text;
  } otherwise; /* the default */
} field_type;

struct message_type {
  rxd_text name;
  known_type known;
  bool is_map_entry;
  uint32_t field_count;
  const field_type *fields; /* by number, ascending */
  uint32_t oneof_count;
  const rxd_text *oneofs;  /* names of the oneofs */
  uint32_t required_count;
  uint32_t dense_count;   /* `dense` has an index + 1 for each number below it; 0: no such field */
  const uint32_t *dense;
  uint32_t bucket_count;  /* a power of two */
  const uint32_t *buckets; /* hash table of names: an index + 1, or 0 */
  uint32_t path_count;
  const uint32_t *path; /* the message's index in its file, and within each message that contains it */
};

typedef struct schema schema;

typedef struct schema_problem {
  char at[16]; /* the wrong parameter */
  char message[480];
} schema_problem;

/* Makes the schema of a FileDescriptorSet or, if `proto` is not NULL, of the text of a .proto file. NULL: `problem` has
 * the reason. */
schema *make_schema(const char *set, size_t set_count, const char *proto, size_t proto_count, bool uses_json_names, schema_problem *problem);
void free_schema(schema *schema);
/* NULL: there is none. */
const message_type *find_message(const schema *schema, rxd_text name);
/* Reports that the schema has no message of that name, with similar names. */
void explain_missing(const schema *schema, rxd_text name, schema_problem *problem);

static inline uint32_t hash_of_name(const char *bytes, size_t count) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < count; i++) hash = (hash ^ (unsigned char)bytes[i]) * 16777619u;
  return hash ^ hash >> 15;
}

#ifdef __cplusplus
}
#endif
#endif
