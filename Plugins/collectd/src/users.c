/* The users whose packets are believed, and what their passwords prove. */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include "collectd.h"

void free_users(users *them) {
  for (size_t i = 0; i < them->count; i++) {
    OPENSSL_cleanse(them->all[i].key, sizeof them->all[i].key);
    free_secret(them->all[i].password);
    free(them->all[i].name);
  }
  free(them->all);
  *them = (users){0};
}

const user *find_user(const users *in, rxd_text name) {
  for (size_t i = 0; i < in->count; i++)
    if (text_is(name, text_of(in->all[i].name))) return &in->all[i];
  return NULL;
}

/* Reads collectd's AuthFile: lines of NAME: PASSWORD. A password may have blanks at its end. */
const char *read_users(const char *path, users *to, char *problem, size_t capacity) {
  FILE *file = fopen(path, "r");
  if (file == NULL) {
    snprintf(problem, capacity, "cannot read '%.200s': %s", path, strerror(errno));
    return problem;
  }
  char *line = NULL;
  size_t room = 0, number = 0, places = 0;
  const char *wrong = NULL;
  ssize_t read;
  while (wrong == NULL && (read = getline(&line, &room, file)) >= 0) {
    number++;
    if (strlen(line) < (size_t)read) wrong = "has a zero byte";
    while (read > 0 && (line[read - 1] == '\n' || line[read - 1] == '\r')) line[--read] = 0;
    char *name = line + strspn(line, " \t");
    if (wrong != NULL || *name == 0 || *name == '#') continue;
    char *password = strchr(name, ':');
    if (password == NULL) {
      wrong = "has no colon";
      continue;
    }
    *password++ = 0;
    password += strspn(password, " \t");
    if (*name == 0) wrong = "has no user";
    else if (strlen(name) > 60 || !is_utf8(name, strlen(name))) wrong = "has a user of more than 60 bytes, or not in UTF-8";
    else if (*password == 0) wrong = "has no password";
    else if (find_user(to, text_of(name)) != NULL) wrong = "has a user that an earlier line has too";
    if (wrong != NULL) continue;
    if (to->count == places) {
      /* Not realloc, which would leave copies of keys behind. */
      user *more = need(calloc(places * 2 + 4, sizeof *more));
      if (to->count > 0) memcpy(more, to->all, to->count * sizeof *more);
      if (to->all != NULL) OPENSSL_cleanse(to->all, to->count * sizeof *more);
      free(to->all);
      to->all = more;
      places = places * 2 + 4;
    }
    user *added = &to->all[to->count++];
    *added = (user){.name = copy_text(text_of(name)), .password = copy_text(text_of(password))};
    SHA256((const unsigned char *)password, strlen(password), added->key);
  }
  bool has_failed = ferror(file) != 0;
  if (line != NULL) OPENSSL_cleanse(line, room);
  free(line);
  fclose(file);
  if (has_failed) snprintf(problem, capacity, "cannot read '%.200s'", path);
  else if (wrong != NULL) snprintf(problem, capacity, "'%.200s', line %zu %s; a line must be NAME: PASSWORD", path, number, wrong);
  else if (to->count == 0) snprintf(problem, capacity, "'%.200s' has no users", path);
  else return NULL;
  return problem;
}

bool is_signed_by(const user *by, rxd_text bytes, const unsigned char signature[DIGEST]) {
  unsigned char made[DIGEST];
  unsigned count = 0;
  if (HMAC(EVP_sha256(), by->password, (int)strlen(by->password), (const unsigned char *)bytes.bytes, bytes.count, made, &count) == NULL) abort();
  return count == DIGEST && CRYPTO_memcmp(made, signature, DIGEST) == 0;
}

void decrypt_by(const user *by, const unsigned char vector[16], rxd_text bytes, char *output) {
  EVP_CIPHER_CTX *context = need(EVP_CIPHER_CTX_new());
  int written = 0, more = 0;
  if (EVP_DecryptInit_ex(context, EVP_aes_256_ofb(), NULL, by->key, vector) != 1 ||
      EVP_DecryptUpdate(context, (unsigned char *)output, &written, (const unsigned char *)bytes.bytes, (int)bytes.count) != 1 ||
      EVP_DecryptFinal_ex(context, (unsigned char *)output + written, &more) != 1 || (size_t)(written + more) != bytes.count)
    abort();
  EVP_CIPHER_CTX_free(context);
}

bool has_checksum(const char *bytes, size_t count) {
  unsigned char made[SHA_DIGEST_LENGTH];
  if (count < sizeof made) return false;
  SHA1((const unsigned char *)bytes + sizeof made, count - sizeof made, made);
  return CRYPTO_memcmp(made, bytes, sizeof made) == 0;
}
