/* gzip and Zstandard: unpacks content in pieces, packs content as a whole. */
#ifndef PACK_H
#define PACK_H
#include "buffer.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum packing { PACKED_NONE, PACKED_GZIP, PACKED_ZSTD } packing;

typedef struct unpacker unpacker;

/* Receives a piece of the content. False: stop. */
typedef bool take_content(void *closure, const char *bytes, size_t count);

unpacker *unpacker_make(packing packing);
void unpacker_free(unpacker *unpacker);
/* False: `take` has stopped it, or the content is damaged; then `unpacker_problem` has the reason. */
bool unpacker_feed(unpacker *unpacker, const char *bytes, size_t count, take_content *take, void *closure);
/* False: the content is cut off. */
bool unpacker_end(unpacker *unpacker);
const char *unpacker_problem(const unpacker *unpacker);
size_t unpacker_taken(const unpacker *unpacker);

/* Appends the packed content. */
void pack(packing packing, const char *bytes, size_t count, buffer *packed);

#endif
