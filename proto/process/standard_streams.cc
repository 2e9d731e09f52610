#include "proto/process/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace runnel {

void KeepStandardStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one.
    (void)open("/dev/null", O_RDWR);
  }
}

}  // namespace runnel
