/* Signatures of AWS, version 4 (SigV4). libcurl can sign by itself (CURLOPT_AWS_SIGV4), but version 7.88 takes the query as
 * it stands in the URL: servers refuse the signature when parameters are not sorted, have no value (`?uploads`), or have a
 * character that must be encoded (`prefix=a/b`). */
#ifndef SIGN_H
#define SIGN_H
#include "buffer.h"

#include <stdbool.h>
#include <time.h>

enum { HASH_TEXT = 65 }; /* SHA-256 in hexadecimal digits, with the zero behind them */

typedef struct pair {
  const char *name, *value;
} pair;

typedef struct signing {
  const char *method, *path; /* the path as it is sent */
  const char *query;         /* made by `query_of` */
  const char *service, *region;
  const pair *headers;       /* lower-case names; all are signed */
  size_t header_count;
  const char *payload_hash;
  time_t time;
  const char *access_key, *secret_key;
} signing;

void sha256_text(const void *bytes, size_t count, char text[HASH_TEXT]);
/* Percent-encodes everything but unreserved characters, and slashes if they are kept. */
void add_encoded(buffer *buffer, const char *text, size_t count, bool keeps_slashes);
/* Sorted and encoded: what is sent is what is signed. Sorts `pairs`. */
void query_of(buffer *buffer, pair *pairs, size_t count);
/* "20130524T000000Z" */
void sign_time_text(time_t time, char text[20]);
/* The value of the header Authorization. */
void sign(const signing *signing, buffer *authorization);

#endif
