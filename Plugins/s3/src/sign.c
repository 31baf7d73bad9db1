#include "sign.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

enum { HASH = 32 };

static void hex(const unsigned char *bytes, size_t count, char *text) {
  static const char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < count; i++) {
    text[2 * i] = digits[bytes[i] >> 4];
    text[2 * i + 1] = digits[bytes[i] & 15];
  }
  text[2 * count] = 0;
}

void sha256_text(const void *bytes, size_t count, char text[HASH_TEXT]) {
  unsigned char hash[HASH];
  if (EVP_Digest(bytes, count, hash, NULL, EVP_sha256(), NULL) != 1) abort();
  hex(hash, HASH, text);
}

void add_encoded(buffer *buffer, const char *text, size_t count, bool keeps_slashes) {
  for (size_t i = 0; i < count; i++) {
    unsigned char c = (unsigned char)text[i];
    bool is_plain = (c < 128 && isalnum(c)) || c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keeps_slashes);
    if (is_plain) buffer_add(buffer, &text[i], 1);
    else buffer_print(buffer, "%%%02X", c);
  }
}

/* Names need no encoding in any request, so their plain order is the order of their encoded form. */
static int compare_pairs(const void *a, const void *b) {
  const pair *one = a, *other = b;
  int order = strcmp(one->name, other->name);
  return order != 0 ? order : strcmp(one->value, other->value);
}

void query_of(buffer *buffer, pair *pairs, size_t count) {
  if (count > 1) qsort(pairs, count, sizeof *pairs, compare_pairs);
  for (size_t i = 0; i < count; i++) {
    if (i > 0) buffer_put(buffer, "&");
    add_encoded(buffer, pairs[i].name, strlen(pairs[i].name), false);
    buffer_put(buffer, "=");
    add_encoded(buffer, pairs[i].value, strlen(pairs[i].value), false);
  }
}

void sign_time_text(time_t time, char text[20]) {
  struct tm parts;
  gmtime_r(&time, &parts);
  strftime(text, 20, "%Y%m%dT%H%M%SZ", &parts);
}

/* Leading and trailing spaces are not signed, and several in a row count as one. */
static void add_header_value(buffer *buffer, const char *value) {
  while (*value == ' ' || *value == '\t') value++;
  size_t count = strlen(value);
  while (count > 0 && (value[count - 1] == ' ' || value[count - 1] == '\t')) count--;
  for (size_t i = 0; i < count; i++)
    if (value[i] != ' ' || value[i - 1] != ' ') buffer_add(buffer, &value[i], 1);
}

static void mac(const void *key, size_t key_count, const char *text, unsigned char result[HASH]) {
  unsigned length = HASH;
  if (HMAC(EVP_sha256(), key, (int)key_count, (const unsigned char *)text, strlen(text), result, &length) == NULL) abort();
}

void sign(const signing *signing, buffer *authorization) {
  enum { HEADERS_MOST = 32 };
  pair headers[HEADERS_MOST];
  if (signing->header_count > HEADERS_MOST) abort();
  if (signing->header_count > 0) memcpy(headers, signing->headers, signing->header_count * sizeof *headers);
  qsort(headers, signing->header_count, sizeof *headers, compare_pairs);
  buffer canonical = {0}, names = {0}, scope = {0}, text = {0}, key = {0};
  buffer_print(&canonical, "%s\n", signing->method);
  /* S3 signs the path as sent; all other services encode it once more. */
  if (strcmp(signing->service, "s3") == 0) buffer_put(&canonical, signing->path);
  else add_encoded(&canonical, signing->path, strlen(signing->path), true);
  buffer_print(&canonical, "\n%s\n", signing->query);
  for (size_t i = 0; i < signing->header_count; i++) {
    buffer_print(&canonical, "%s:", headers[i].name);
    add_header_value(&canonical, headers[i].value);
    buffer_put(&canonical, "\n");
    buffer_print(&names, "%s%s", i > 0 ? ";" : "", headers[i].name);
  }
  buffer_print(&canonical, "\n%s\n%s", buffer_text(&names), signing->payload_hash);
  char when[20], hash[HASH_TEXT];
  sign_time_text(signing->time, when);
  sha256_text(canonical.bytes, canonical.count, hash);
  buffer_print(&scope, "%.8s/%s/%s/aws4_request", when, signing->region, signing->service);
  buffer_print(&text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", when, buffer_text(&scope), hash);
  unsigned char step[HASH], next[HASH];
  buffer_print(&key, "AWS4%s", signing->secret_key);
  char day[9] = {0};
  memcpy(day, when, 8);
  mac(key.bytes, key.count, day, step);
  mac(step, HASH, signing->region, next);
  mac(next, HASH, signing->service, step);
  mac(step, HASH, "aws4_request", next);
  mac(next, HASH, text.bytes, step);
  char signature[HASH_TEXT];
  hex(step, HASH, signature);
  buffer_print(authorization, "AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=%s", signing->access_key,
               buffer_text(&scope), buffer_text(&names), signature);
  OPENSSL_cleanse(key.bytes, key.count);
  OPENSSL_cleanse(step, sizeof step);
  OPENSSL_cleanse(next, sizeof next);
  buffer_free(&canonical), buffer_free(&names), buffer_free(&scope), buffer_free(&text), buffer_free(&key);
}
