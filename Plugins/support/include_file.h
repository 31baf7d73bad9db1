/* Embeds a file in a plugin, such as its spec. */
#ifndef INCLUDE_FILE_H
#define INCLUDE_FILE_H
/* Embeds the bytes of a file as the constants `name` and `name_end`; the file's directory must be in the include
 * path. */
#define INCLUDE_FILE(name, file)                                                                                       \
  __asm__(".section .rodata\n.global " #name "\n.hidden " #name "\n" #name ":\n"                                       \
          ".incbin \"" file "\"\n.global " #name "_end\n.hidden " #name "_end\n" #name "_end:\n.byte 0\n.previous\n"); \
  extern const char name[], name##_end[]
#endif
