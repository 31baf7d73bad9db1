// Shared by the passes over a block of lines, which work on 64 bytes at a time as bit sets. Not part of the interface.
#ifndef RX_LINES_BLOCK_H
#define RX_LINES_BLOCK_H
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rx_json {

typedef uint8_t block64 __attribute__((vector_size(64)));
typedef bool bits64 __attribute__((ext_vector_type(64)));

#define RX_INLINE __attribute__((always_inline)) inline
/// Bit n of the result: whether the mask holds for byte n.
#define RX_BITS(mask) __builtin_bit_cast(uint64_t, __builtin_convertvector(mask, bits64))

/// The bytes that are escaped by a backslash before them: every second backslash of a run, and the byte after a run of
/// odd length. `escaped`: on entry 1 if the first byte is escaped, on return 1 if the first byte after the 64 is.
RX_INLINE uint64_t hidden(uint64_t backslash, uint64_t &escaped) {
  const uint64_t start = backslash & ~escaped;
  // Subtracting a run that begins at an even position from the odd positions after it borrows through the whole run.
  const uint64_t odd = 0xAAAAAAAAAAAAAAAA;
  const uint64_t run = ((start << 1 | odd) - start) ^ odd;
  const uint64_t all = run ^ (backslash | escaped);
  escaped = (run & backslash) >> 63;
  return all;
}

/// For each bit, whether an odd number of bits is set up to it.
RX_INLINE uint64_t parity_by_shifts(uint64_t set) {
  for (int i = 1; i < 64; i *= 2) set ^= set << i;
  return set;
}

/// Writes `base` + the index of each set bit; may write up to `token_margin` entries beyond the end, which it returns.
RX_INLINE uint32_t *put_by_bits(uint32_t *out, uint32_t base, uint64_t set) {
  uint32_t *const end = out + __builtin_popcountll(set);
  do {
    for (int i = 0; i < 8; i++) {
      *out++ = base + static_cast<uint32_t>(__builtin_ctzll(set | uint64_t{1} << 63));
      set &= set - 1;
    }
  } while (__builtin_expect(set != 0, false));
  return end;
}

/// How many entries beyond the last token may be overwritten.
constexpr size_t token_margin = 80;

/// The brackets at which the depth is not above 0, if it is `depth`, at most 64, before the first byte.
RX_INLINE uint64_t lows_by_bits(uint64_t open, uint64_t close, int32_t depth) {
  uint64_t lows = 0;
  for (uint64_t rest = open | close; rest; rest &= rest - 1) {
    const uint64_t bracket = rest & (0 - rest);
    depth += open & bracket ? 1 : -1;
    lows |= depth <= 0 ? bracket : 0;
  }
  return lows;
}

#if defined(__x86_64__)
#define RX_AVX2 "avx2,bmi,bmi2,popcnt,lzcnt,pclmul"
#define RX_AVX512 "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2," RX_AVX2

__attribute__((target("pclmul"))) RX_INLINE uint64_t parity_by_product(uint64_t set) {
  return _mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi64_si128(set), _mm_set1_epi8(-1), 0));
}

__attribute__((target(RX_AVX512))) RX_INLINE uint32_t *put_by_compression(uint32_t *out, uint32_t base, uint64_t set) {
  alignas(64) static const uint8_t places[64] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
    32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
  const int count = __builtin_popcountll(set);
  __m512i found = _mm512_maskz_compress_epi8(set, _mm512_load_si512(places));
  const __m512i from = _mm512_set1_epi32(static_cast<int>(base));
  for (int done = 0;;) {
    _mm512_storeu_si512(out + done, _mm512_add_epi32(from, _mm512_cvtepu8_epi32(_mm512_castsi512_si128(found))));
    done += 16;
    if (__builtin_expect(done >= count, true)) break;
    found = _mm512_alignr_epi64(found, found, 2);
  }
  return out + count;
}

/// Like `lows_by_bits`, by prefix sums over all bytes at once: within groups of 16, then over the groups before.
__attribute__((target(RX_AVX512))) RX_INLINE uint64_t lows_by_sums(uint64_t open, uint64_t close, int32_t depth) {
  __m512i sum = _mm512_mask_mov_epi8(
    _mm512_maskz_mov_epi8(open, _mm512_set1_epi8(1)), close, _mm512_set1_epi8(-1));
  sum = _mm512_add_epi8(sum, _mm512_bslli_epi128(sum, 1));
  sum = _mm512_add_epi8(sum, _mm512_bslli_epi128(sum, 2));
  sum = _mm512_add_epi8(sum, _mm512_bslli_epi128(sum, 4));
  sum = _mm512_add_epi8(sum, _mm512_bslli_epi128(sum, 8));
  const __m512i last = _mm512_set1_epi8(15);
  sum = _mm512_add_epi8(
    sum, _mm512_shuffle_epi8(_mm512_maskz_shuffle_i64x2(0xFC, sum, sum, _MM_SHUFFLE(2, 1, 0, 0)), last));
  sum = _mm512_add_epi8(
    sum, _mm512_shuffle_epi8(_mm512_maskz_shuffle_i64x2(0xF0, sum, sum, _MM_SHUFFLE(1, 0, 0, 0)), last));
  return _mm512_mask_cmple_epi8_mask(open | close, sum, _mm512_set1_epi8(static_cast<char>(-depth)));
}
#endif

}  // namespace rx_json
#endif
