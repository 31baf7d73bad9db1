// Reading and writing JSON text (RFC 8259), with a C interface.
//
// Decided here, once, for everything that reads JSON:
// - a number without '.', 'e' and 'E' is an int if it fits int64, else a uint if it fits uint64, else a
//   double; "-0" is the double -0.0; a number beyond the range of doubles is infinite ("1e400"), one too small is 0;
// - a double that would be written with other bytes than it was read from keeps its text (rx_value.h);
// - of members with equal keys the first counts; keys are compared after their escapes are resolved;
// - half of a surrogate pair ("\ud83d") is legal, and U+FFFD when resolved;
// - a string with backslashes keeps them, flagged RX_ESCAPED; keys of built maps never do.
#ifndef RX_JSON_H
#define RX_JSON_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rx_value.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Why a text is not a JSON document, or exceeds the limits.
enum rx_json_reason {
  RX_JSON_OK = 0,
  RX_JSON_EMPTY = 1,
  RX_JSON_EXPECTED_VALUE = 2,
  RX_JSON_EXPECTED_KEY = 3,
  RX_JSON_EXPECTED_KEY_OR_END = 4,
  RX_JSON_EXPECTED_COLON = 5,
  RX_JSON_EXPECTED_COMMA_OR_BRACE = 6,
  RX_JSON_EXPECTED_COMMA_OR_BRACKET = 7,
  RX_JSON_EXPECTED_END = 8,
  RX_JSON_BAD_NUMBER = 9,
  RX_JSON_UNCLOSED_STRING = 10,
  RX_JSON_CONTROL_CHARACTER = 11,
  RX_JSON_BAD_ESCAPE = 12,
  RX_JSON_BAD_UTF8 = 13,
  RX_JSON_TOO_DEEP = 14,
  RX_JSON_TOO_MANY_FIELDS = 15,
  RX_JSON_TOO_LARGE = 16,
  RX_JSON_MALFORMED = 17, ///< refused without a known place
  RX_JSON_NO_MEMORY = 18,
};

/// The `aux` of an RX_ERROR value that represents a JSON failure: its payload is the offset in bytes, its length the
/// reason, its flags 1 if the text ends there.
#define RX_ERROR_JSON 0x4a53

typedef struct rx_json_failure {
  uint64_t offset; ///< bytes from the start of the text that was handed in
  uint32_t reason;
  bool at_end;     ///< the text ends at `offset`
} rx_json_failure;

typedef struct rx_json_limits {
  uint32_t depth;  ///< nested containers; at most 1024
  uint32_t fields; ///< members of all objects of a document together
} rx_json_limits;

/// Reads documents, one at a time; keeps its memory between them. Not thread-safe.
typedef struct rx_json_parser rx_json_parser;
rx_json_parser *rx_json_parser_new(void);
void rx_json_parser_free(rx_json_parser *parser);

/// Checks a document completely and builds nothing. False: the reason is in `*failure`.
bool rx_json_validate(
  rx_json_parser *parser, const char *text, size_t length, rx_json_limits limits, rx_json_failure *failure);

/// The same check byte by byte, without an index: slower and independent, so that tests can compare the two.
bool rx_json_validate_plainly(
  const char *text, size_t length, rx_json_limits limits, rx_json_failure *failure);

/// Reads a scalar document completely; an object or an array becomes RX_JSON_MAP or RX_JSON_LIST over its exact range.
/// Without `complete`, an object or an array is checked only for valid UTF-8, closed strings without control
/// characters, balanced brackets, and the end of the document.
bool rx_json_open(
  rx_json_parser *parser, const char *text, size_t length, bool complete, rx_json_limits limits,
  rx_value *value, rx_json_failure *failure);

/// The first half of building a tree: finds the tokens of an object or array that starts and ends `text`.
/// Returns the bytes of memory that `rx_json_build` needs, aligned to 16, or -1.
int64_t rx_json_index(rx_json_parser *parser, const char *text, size_t length, rx_json_failure *failure);
/// The second half, for the same text: values in `memory`, strings pointing into `text`.
bool rx_json_build(
  rx_json_parser *parser, const char *text, size_t length, rx_json_limits limits, void *memory,
  rx_value *value, rx_json_failure *failure);

/// The first member of that name in the JSON text of an object: RX_ABSENT if there is none, RX_ERROR if the text before
/// it is malformed. Containers stay JSON text. Reads no byte after the end.
rx_value rx_json_find(const char *text, size_t length, const char *key, size_t key_length);
/// One element of the JSON text of an array, from 0.
rx_value rx_json_element(const char *text, size_t length, size_t index);
/// The end of the document that begins at `start`, without white space before it; found by matching brackets and quotes
/// only. 0 if the document does not end within the text.
size_t rx_json_document_end(const char *text, size_t length, size_t start);

/// Reads all of `text` as one JSON number. False: it is not one.
bool rx_json_number(const char *text, size_t length, rx_value *value);
/// Resolves the escapes of a string literal's content; writes at most `length` bytes, returns how many. Escapes that
/// JSON does not know stay as they are.
size_t rx_json_unescape(const char *text, size_t length, char *target);

/// The offset of the first `needle` in `text`, or -1.
long rx_find(const char *text, size_t length, const char *needle, size_t needle_length);
/// Whether all of `text` is UTF-8.
bool rx_json_is_utf8(const char *text, size_t length);
/// The offset of the first byte that is not UTF-8, or `length`.
size_t rx_json_utf8_error(const char *text, size_t length);
/// Copies bytes from the start, as long as they need no escape in a string literal; returns how many. May write all
/// `length` bytes of `target`.
size_t rx_json_copy_plain(const char *text, size_t length, char *target);
/// The smallest byte; 255 for an empty text.
unsigned char rx_json_least_byte(const char *text, size_t length);
/// Copies JSON text without the white space between tokens; writes at most `length` + 64 bytes.
size_t rx_json_minify(const char *text, size_t length, char *target);
/// Writes the shortest digits that read back as `number`, which must be finite, always with '.' or 'e'; at most 32
/// bytes.
size_t rx_json_write_double(double number, char *target);
/// Each writes at most 20 bytes.
size_t rx_json_write_int(int64_t number, char *target);
size_t rx_json_write_uint(uint64_t number, char *target);
/// The usable size of an allocation, which may be more than was requested; 0 for a null pointer.
size_t rx_memory_size(void *memory);

#ifdef __cplusplus
}
#endif
#endif
