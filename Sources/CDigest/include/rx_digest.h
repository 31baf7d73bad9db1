#ifndef RX_DIGEST_H
#define RX_DIGEST_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
enum { RX_MD5, RX_SHA1, RX_SHA224, RX_SHA256, RX_SHA384, RX_SHA512, RX_BLAKE2B_512, RX_DIGESTS };
enum { RX_DIGEST_MAX = 64 };
/// Writes the digest of `count` bytes to `out` (RX_DIGEST_MAX bytes). Returns its length, or 0 if the library
/// (libcrypto, loaded by the first call) is not installed or does not offer the algorithm. The first call for an
/// algorithm looks it up.
size_t rx_digest(int algorithm, const void *bytes, size_t count, unsigned char *out);
/// The keyed digest, HMAC (RFC 2104).
size_t rx_hmac(
  int algorithm, const void *key, size_t key_count, const void *bytes, size_t count, unsigned char *out);
/// Whether the signature of `count` bytes is that of the key (Ed25519, RFC 8032): 1 or 0; -1 if libcrypto is not installed or
/// cannot verify.
int rx_verify_ed25519(
  const unsigned char key[32], const unsigned char signature[64], const void *bytes, size_t count);
/// XXH3 with 64 bits and seed 0.
uint64_t rx_xxh3(const void *bytes, size_t count);
/// XXH3 with a seed, for hash tables.
uint64_t rx_xxh3_seeded(const void *bytes, size_t count, uint64_t seed);
/// CRC-32 as in zip, gzip and PNG.
uint32_t rx_crc32(const void *bytes, size_t count);
#ifdef __cplusplus
}
#endif
#endif
