// Simulates a fault in a library: loaded before RE2, it traps when a text contains the value of TRAP_ON.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct piece {
  const char *data;
  size_t size;
};

#define NAME _ZN3re23RE213PartialMatchNERKNS_11StringPieceERKS0_PKPKNS0_3ArgEi
#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

bool NAME(const struct piece *text, const void *expression, const void *const *arguments, int count) {
  const char *bad = getenv("TRAP_ON");
  if (bad && memmem(text->data, text->size, bad, strlen(bad))) __builtin_trap();
  bool (*next)(const struct piece *, const void *, const void *const *, int) = dlsym(RTLD_NEXT, TEXT(NAME));
  return next(text, expression, arguments, count);
}
