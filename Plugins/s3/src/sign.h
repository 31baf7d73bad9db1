/* Signatures of AWS, version 4 (SigV4). libcurl can sign requests (CURLOPT_AWS_SIGV4), but version 7.88 signs the query as
 * written in the URL: servers reject the signature if parameters are not sorted, have no value (`?uploads`), or contain a
 * character that must be encoded (`prefix=a/b`). */
#ifndef SIGN_H
#define SIGN_H
#include "buffer.h"

#include <stdbool.h>
#include <time.h>

enum { HASH_TEXT = 65 }; /* SHA-256 in hexadecimal digits, with a terminating zero */

typedef struct pair {
  const char *name, *value;
} pair;

typedef struct signing {
  const char *method, *path; /* the path as sent */
  const char *query;         /* made by `query_of` */
  const char *service, *region;
  const pair *headers;       /* lower-case names; all are signed */
  size_t header_count;
  const char *payload_hash;
  time_t time;
  const char *access_key, *secret_key;
} signing;

void sha256_text(const void *bytes, size_t count, char text[HASH_TEXT]);
/* Percent-encodes all but unreserved characters; slashes too, unless they are kept. */
void add_encoded(buffer *buffer, const char *text, size_t count, bool keeps_slashes);
/* Builds the query, sorted and encoded: the sent query must equal the signed one. Sorts `pairs`. */
void query_of(buffer *buffer, pair *pairs, size_t count);
/* Formats a time as "20130524T000000Z". */
void sign_time_text(time_t time, char text[20]);
/* Makes the value of the Authorization header. */
void sign(const signing *signing, buffer *authorization);

#endif
