// The value that events are made of: sixteen trivially copyable bytes that Swift and C++ share.
#ifndef RX_VALUE_H
#define RX_VALUE_H
#include <stdint.h>

/// The kind of a value. The order is not part of any file format.
enum rx_kind {
  RX_ABSENT = 0,     ///< nothing there: a slot whose path the event lacks; never an element of a list or map
  RX_NULL = 1,
  RX_BOOL = 2,       ///< payload 0 or 1
  RX_INT = 3,        ///< payload: int64
  RX_UINT = 4,       ///< payload: uint64
  RX_DOUBLE = 5,     ///< payload: the bits of an IEEE double; flags, aux and length: its text, see RX_TEXT_LIMIT
  RX_STRING = 6,     ///< payload: pointer to UTF-8, length: bytes
  RX_BYTES = 7,      ///< payload: pointer, length: bytes
  RX_LIST = 8,       ///< payload: pointer to rx_value[length]
  RX_MAP = 9,        ///< payload: pointer to rx_entry[length], keys distinct, in order of insertion
  RX_JSON_LIST = 10, ///< payload: pointer to the JSON text of an array, length: bytes; parsed on demand
  RX_JSON_MAP = 11,  ///< payload: pointer to the JSON text of an object, length: bytes; parsed on demand
  RX_TIMESTAMP = 12, ///< payload: int64 seconds since 1970-01-01T00:00:00Z, length: nanoseconds 0..<10^9
  RX_DURATION = 13,  ///< payload: int64 nanoseconds
  RX_TYPE = 14,      ///< payload: pointer to the UTF-8 name of a type, length: bytes
  RX_OPTIONAL = 15,  ///< payload: pointer to rx_value, or null for optional.none()
  RX_ERROR = 16,     ///< aux: error code; payload and length belong to the code
};

/// A double that was read from a text which writing would not reproduce (`1.50`, `1e3`, 30 digits) keeps that text:
/// `flags` is its length in bytes, `aux` the low 16 and `length` the high 32 bits of its address. All are 0 if there is
/// none. A text longer than this is not kept.
#define RX_TEXT_LIMIT 255

/// A string whose bytes are the content of a JSON string literal that contains backslashes.
#define RX_ESCAPED 1

/// The `aux` of a string that needs no escapes in a JSON literal; a hint for writers.
#define RX_PLAIN 1

/// The `aux` of JSON text whose whole grammar has been checked, or that is a part of such text.
#define RX_CHECKED 1

#ifdef __cplusplus
typedef struct rx_value {
  uint64_t payload;
  uint8_t kind;
  uint8_t flags;
  uint16_t aux;
  uint32_t length;
} rx_value;
#else
/// The value as two words, which is how Swift sees it: a value stays in two registers, and recent writes are read back
/// with the same width. `Value.swift` defines the parts of `head`.
typedef struct rx_value {
  uint64_t payload;
  uint64_t head;
} rx_value;

/// The same value, forced into two registers: keeps the compiler from joining the loads of its words into one load of
/// sixteen bytes. Such a load waits a dozen cycles for two stores of words that have not reached the cache, while loads
/// of single words get the stored values at once.
static inline rx_value rx_value_by_words(rx_value value) {
#if defined(__GNUC__)
  __asm__("" : "+r"(value.payload), "+r"(value.head));
#endif
  return value;
}
#endif

typedef struct rx_entry {
  rx_value key;
  rx_value value;
} rx_entry;

#endif
