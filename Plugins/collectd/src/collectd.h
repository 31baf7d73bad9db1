/* Converts packets of collectd's binary network protocol to values of rxd. */
#ifndef COLLECTD_H
#define COLLECTD_H
#include "format_util.h"

/* ---- types.db: the names of the values of each type ---- */

typedef struct type {
  char *name;
  rxd_text *values;
  size_t count;
} type;

typedef struct types {
  type *all; /* open addressing; a free slot has no name */
  size_t count, capacity;
} types;

/* Adds the types of a file; a type that is there already is replaced. The problem, or NULL. */
const char *read_types(const char *path, types *to, char *problem, size_t capacity);
const type *find_type(const types *in, rxd_text name);
void free_types(types *them);

/* ---- The file of users ---- */

enum { DIGEST = 32 };

typedef struct user {
  char *name, *password;
  unsigned char key[DIGEST]; /* SHA-256 of the password, the key of encrypted parts */
} user;

typedef struct users {
  user *all;
  size_t count;
} users;

const char *read_users(const char *path, users *to, char *problem, size_t capacity);
const user *find_user(const users *in, rxd_text name);
void free_users(users *them);

/* Whether `signature` is the HMAC-SHA-256 of the bytes. */
bool is_signed_by(const user *by, rxd_text bytes, const unsigned char signature[DIGEST]);
/* Decrypts AES-256 in output feedback mode. */
void decrypt_by(const user *by, const unsigned char vector[16], rxd_text bytes, char *output);
/* Whether the first 20 bytes are the SHA-1 of the rest. */
bool has_checksum(const char *bytes, size_t count);

/* ---- Packets ---- */

/* What a packet must be for its values to count. */
typedef enum security { SECURITY_NONE, SECURITY_SIGN, SECURITY_ENCRYPT } security;

/* A decoder's parameters. Shared by threads, so constant after `open`. */
typedef struct reading {
  types types;
  users users;
  bool has_users;
  security security;
} reading;

/* Appends the events of the parts of the input. */
int decode_packet(const reading *how, rxd_scope *scope, rxd_text input, value_stack *events);
#endif
