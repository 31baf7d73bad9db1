// Simulates a hanging device: loaded before the C library, fdatasync does not return while the file named by HANG_WHILE
// exists.
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int descriptor) {
  const char *file = getenv("HANG_WHILE");
  while (file && access(file, F_OK) == 0) usleep(1000);
  return (int)syscall(SYS_fdatasync, descriptor);
}
