#include "rx_digest.h"

#include <dlfcn.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

// Compiled in: no library is loaded for it.
#define XXH_INLINE_ALL
#include <xxhash.h>

static const char *const names[RX_DIGESTS] = {"MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512", "BLAKE2B-512"};
static _Atomic(EVP_MD *) known[RX_DIGESTS];

// The functions of libcrypto, with the types from its headers. The library is loaded at the first digest, because its
// relocations alone take a tenth of the memory of a small process.
static struct {
  __typeof__(&EVP_MD_fetch) fetch;
  __typeof__(&EVP_MD_free) free;
  __typeof__(&EVP_Digest) digest;
  __typeof__(&HMAC) hmac;
  __typeof__(&EVP_PKEY_new_raw_public_key) new_key;
  __typeof__(&EVP_PKEY_free) free_key;
  __typeof__(&EVP_MD_CTX_new) new_context;
  __typeof__(&EVP_MD_CTX_free) free_context;
  __typeof__(&EVP_DigestVerifyInit) verify_init;
  __typeof__(&EVP_DigestVerify) verify;
} lib;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
  void *handle = dlopen("libcrypto.so.3", RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return;
  lib.free = (__typeof__(lib.free))dlsym(handle, "EVP_MD_free");
  lib.digest = (__typeof__(lib.digest))dlsym(handle, "EVP_Digest");
  lib.hmac = (__typeof__(lib.hmac))dlsym(handle, "HMAC");
  lib.new_key = (__typeof__(lib.new_key))dlsym(handle, "EVP_PKEY_new_raw_public_key");
  lib.free_key = (__typeof__(lib.free_key))dlsym(handle, "EVP_PKEY_free");
  lib.new_context = (__typeof__(lib.new_context))dlsym(handle, "EVP_MD_CTX_new");
  lib.free_context = (__typeof__(lib.free_context))dlsym(handle, "EVP_MD_CTX_free");
  lib.verify_init = (__typeof__(lib.verify_init))dlsym(handle, "EVP_DigestVerifyInit");
  lib.verify = (__typeof__(lib.verify))dlsym(handle, "EVP_DigestVerify");
  // Set last, only if all others were found: it shows that the library can be used.
  if (lib.free && lib.digest && lib.hmac) lib.fetch = (__typeof__(lib.fetch))dlsym(handle, "EVP_MD_fetch");
}

/// The algorithm, looked up once per process; a copy that a second thread looked up is freed.
static const EVP_MD *algorithm_at(int index) {
  if (index < 0 || index >= RX_DIGESTS) return NULL;
  EVP_MD *found = atomic_load_explicit(&known[index], memory_order_acquire);
  if (found) return found;
  pthread_once(&once, load);
  if (!lib.fetch) return NULL;
  EVP_MD *fresh = lib.fetch(NULL, names[index], NULL);
  if (!fresh) return NULL;
  if (atomic_compare_exchange_strong(&known[index], &found, fresh)) return fresh;
  lib.free(fresh);
  return found;
}

size_t rx_digest(int algorithm, const void *bytes, size_t count, unsigned char *out) {
  const EVP_MD *how = algorithm_at(algorithm);
  unsigned int length = 0;
  if (!how || !lib.digest(count ? bytes : "", count, out, &length, how, NULL)) return 0;
  return length;
}

size_t rx_hmac(
  int algorithm, const void *key, size_t key_count, const void *bytes, size_t count, unsigned char *out) {
  const EVP_MD *how = algorithm_at(algorithm);
  unsigned int length = 0;
  if (!how || key_count > 1 << 30) return 0;
  if (!lib.hmac(how, key_count ? key : "", (int)key_count, count ? bytes : (const void *)"", count, out, &length)) return 0;
  return length;
}

int rx_verify_ed25519(
  const unsigned char key[32], const unsigned char signature[64], const void *bytes, size_t count) {
  pthread_once(&once, load);
  if (!lib.new_key || !lib.free_key || !lib.new_context || !lib.free_context || !lib.verify_init || !lib.verify) return -1;
  EVP_PKEY *public = lib.new_key(EVP_PKEY_ED25519, NULL, key, 32);
  EVP_MD_CTX *context = lib.new_context();
  int result = -1;
  if (public && context && lib.verify_init(context, NULL, NULL, NULL, public) == 1)
    result = lib.verify(context, signature, 64, count ? bytes : (const void *)"", count) == 1;
  lib.free_context(context);
  lib.free_key(public);
  return result;
}

uint64_t rx_xxh3_seeded(const void *bytes, size_t count, uint64_t seed) {
  return XXH3_64bits_withSeed(count ? bytes : "", count, seed);
}

uint64_t rx_xxh3(const void *bytes, size_t count) { return XXH3_64bits(count ? bytes : "", count); }

uint32_t rx_crc32(const void *bytes, size_t count) {
  static _Atomic int ready;
  static uint32_t table[256];
  // Needs no lock: every thread writes the same numbers.
  if (!atomic_load_explicit(&ready, memory_order_acquire)) {
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; bit++) value = value & 1 ? value >> 1 ^ 0xEDB88320u : value >> 1;
      __atomic_store_n(&table[i], value, __ATOMIC_RELAXED);
    }
    atomic_store_explicit(&ready, 1, memory_order_release);
  }
  const unsigned char *at = bytes;
  uint32_t crc = 0xFFFFFFFFu;
  for (size_t i = 0; i < count; i++) crc = table[(crc ^ at[i]) & 0xFF] ^ crc >> 8;
  return ~crc;
}
