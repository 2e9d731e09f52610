// A library of OpenCL whose functions never return, as those of a driver that hangs. It says so on stderr first.

#include <unistd.h>

#define HANGS(name)                              \
  int name(void);                                \
  int name(void) {                               \
    static const char text[] = #name " hangs\n"; \
    if (write(2, text, sizeof text - 1) < 0) {   \
    }                                            \
    for (;;) pause();                            \
  }

#define HOST_FUNCTION(row, name, kinds) HANGS(cl##row)
#include "kernels/backends/vendor_host/opencl_functions.inc"
#undef HOST_FUNCTION
// Its row has a name of its own.
HANGS(clGetKernelInfo)
