// A device that hangs: loaded before the C library, this never comes back from fdatasync as long as the file exists that
// HANG_WHILE names.
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int descriptor) {
  const char *file = getenv("HANG_WHILE");
  while (file && access(file, F_OK) == 0) usleep(1000);
  return (int)syscall(SYS_fdatasync, descriptor);
}
