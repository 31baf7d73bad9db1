// The lower bound for a program that follows one file and appends to another: `floor INPUT OUTPUT` waits for kernel
// events of INPUT, reads what was added since the start and appends every second line, without parsing it, to OUTPUT.
// Both files must exist. Ends by a signal.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

static char text[1 << 16], kept[1 << 16];

int main(int argc, char **argv) {
  if (argc != 3) return 64;
  const int watch = inotify_init1(IN_CLOEXEC);
  const int input = open(argv[1], O_RDONLY), output = open(argv[2], O_WRONLY | O_APPEND);
  // Watches before it looks for the end, so that everything written later causes an event.
  if (watch < 0 || input < 0 || output < 0 || inotify_add_watch(watch, argv[1], IN_MODIFY) < 0
      || lseek(input, 0, SEEK_END) < 0) {
    perror("floor");
    return 66;
  }
  int keeps = 1;
  for (;;) {
    char news[4096];
    if (read(watch, news, sizeof news) < 0) return 74;
    ssize_t count;
    do {
      if ((count = read(input, text, sizeof text)) < 0) return 74;
      size_t length = 0;
      for (char *line = text, *const end = text + count; line < end;) {
        char *const feed = memchr(line, '\n', end - line), *const next = feed ? feed + 1 : end;
        if (keeps) {
          memcpy(kept + length, line, next - line);
          length += next - line;
        }
        if (feed) keeps = !keeps;
        line = next;
      }
      if (length && write(output, kept, length) != (ssize_t)length) return 74;
      // A short read means the end; whatever is written now causes an event.
    } while (count == sizeof text);
  }
}
