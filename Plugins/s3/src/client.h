/* Requests to S3 and to related services: SQS queues and credential providers. */
#ifndef CLIENT_H
#define CLIENT_H
#include "sign.h"

#include <curl/curl.h>
#include <plugin_util.h>

enum {
  PROBLEM_MOST = 400,
  ANSWER_MOST = 16 << 20, /* maximum size of an answer kept in memory, in bytes */
  HEADERS_BYTES_MOST = 256 << 10,
};

/* ---- Credentials ---- */

typedef struct credentials {
  /* The parameters. */
  char *access_key, *secret_key, *session_token; /* NULL: not given */
  char *profile, *file;
  /* The credentials in use; NULL: not looked up yet. */
  char *access, *secret, *token;
  time_t expires; /* 0: never */
} credentials;

/* ---- The client ---- */

/* Whether the current request should end because its result is no longer needed. */
typedef bool is_over(void *closure);

typedef struct origin {
  char *scheme_host; /* "https://s3.eu-central-1.amazonaws.com:8443" */
  char *host;        /* the header Host */
  char *path;        /* "", or a path without a trailing slash */
} origin;

typedef struct client {
  rxd_instance *instance;
  CURL *curl;
  char *bucket, *region, *ca;
  origin origin;   /* origin of the bucket */
  bool is_secure, skips_verification;
  credentials credentials;
  int64_t connect_ms, idle_ms;
  is_over *is_over;
  void *is_over_closure;
  char problem[PROBLEM_MOST];
  unsigned failures;
  bool has_worked, is_reported;
} client;

typedef enum outcome {
  DONE,
  ABSENT,   /* the object or the upload does not exist */
  CHANGED,  /* a condition does not hold */
  REFUSED,  /* this object cannot be read or stored; others may */
  AGAIN,    /* a retry may help */
  NEVER,    /* these parameters cannot work */
  OVER,     /* ended by `is_over` */
} outcome;

/* Receives a part of the body of a successful answer. False: stop. */
typedef bool take_body(void *closure, const char *bytes, size_t count);

enum { REQUEST_PAIRS = 12 };

typedef struct request {
  const char *method, *service; /* NULL: "s3"; "": not signed */
  const origin *origin;         /* NULL: the bucket's */
  const char *key;              /* NULL: the bucket itself, or the path of `origin` */
  pair query[REQUEST_PAIRS];
  size_t query_count;
  pair headers[REQUEST_PAIRS];  /* lower-case names */
  size_t header_count;
  const char *body;
  size_t body_count;
  int64_t timeout_ms;           /* for the whole request; 0: no limit while bytes arrive */
  take_body *take;              /* NULL: the body is stored in the answer */
  void *closure;
} request;

typedef struct answer {
  CURLcode code;
  long status;
  bool is_over, is_stopped, is_too_large;
  char etag[160], encoding[32], region[64], range[80], error[80], message[240], retry_after[16];
  int64_t date, last_modified; /* seconds since 1970; 0: unknown */
  int64_t length;              /* length of the body; below 0: unknown */
  size_t header_bytes;
  buffer body;
  char hash[HASH_TEXT];        /* hash of the content, as recorded by the sink */
} answer;

int client_open(const rxd_opening *opening, client *self);
void client_close(client *self);
/* Copies the client for use by another thread. */
void client_copy(const client *from, client *to);
void client_fork_close(client *self);

void request_query(request *request, const char *name, const char *value);
void request_header(request *request, const char *name, const char *value);
/* Sends the request once and judges the answer; `problem` has the reason of a failure. */
outcome client_send(client *self, request *request, answer *answer);
void answer_free(answer *answer);

bool origin_parse(const char *text, origin *origin, bool *is_secure, char *problem, size_t capacity);
void origin_free(origin *origin);

/* Counts a failure and logs the first one in a row. Returns the pause before the next attempt, in milliseconds. */
int64_t client_failed(client *self, const char *what);
/* Reports the end of failures if one was reported. */
void client_works(client *self);
__attribute__((format(printf, 2, 3))) void client_trouble(client *self, const char *format, ...);

/* ---- In credentials.c ---- */

int credentials_open(const rxd_opening *opening, credentials *self);
void credentials_copy(const credentials *from, credentials *to);
void credentials_close(credentials *self);
/* Finds credentials, unless those in use stay valid for a while. */
outcome credentials_find(client *client);
/* Called when the server rejects the credentials: looks them up again if they are temporary or from a file. False:
 * they would be the same. */
bool credentials_forget(credentials *self);

#endif
