#include "rx_digest.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdatomic.h>
#include <string.h>

// Compiled in: no library is loaded for it.
#define XXH_INLINE_ALL
#include <xxhash.h>

static const char *const names[RX_DIGESTS] = {"MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512"};
static _Atomic(EVP_MD *) known[RX_DIGESTS];

/// The algorithm, looked up once for the process; a second thread's copy is given back.
static const EVP_MD *algorithm_at(int index) {
  if (index < 0 || index >= RX_DIGESTS) return NULL;
  EVP_MD *found = atomic_load_explicit(&known[index], memory_order_acquire);
  if (found) return found;
  EVP_MD *fresh = EVP_MD_fetch(NULL, names[index], NULL);
  if (!fresh) return NULL;
  if (atomic_compare_exchange_strong(&known[index], &found, fresh)) return fresh;
  EVP_MD_free(fresh);
  return found;
}

size_t rx_digest(int algorithm, const void *bytes, size_t count, unsigned char *out) {
  const EVP_MD *how = algorithm_at(algorithm);
  unsigned int length = 0;
  if (!how || !EVP_Digest(count ? bytes : "", count, out, &length, how, NULL)) return 0;
  return length;
}

size_t rx_hmac(
  int algorithm, const void *key, size_t key_count, const void *bytes, size_t count, unsigned char *out) {
  const EVP_MD *how = algorithm_at(algorithm);
  unsigned int length = 0;
  if (!how || key_count > 1 << 30) return 0;
  if (!HMAC(how, key_count ? key : "", (int)key_count, count ? bytes : (const void *)"", count, out, &length)) return 0;
  return length;
}

uint64_t rx_xxh3_seeded(const void *bytes, size_t count, uint64_t seed) {
  return XXH3_64bits_withSeed(count ? bytes : "", count, seed);
}

uint64_t rx_xxh3(const void *bytes, size_t count) { return XXH3_64bits(count ? bytes : "", count); }

uint32_t rx_crc32(const void *bytes, size_t count) {
  static _Atomic int ready;
  static uint32_t table[256];
  // Every thread writes the same numbers.
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
