#pragma once

// What a worker and the vendor host (vendor_host.c) say to each other. C and C++; both sides are of
// one build.
//
// Requests and replies are packets of a socket, one at a time. Bytes lie in an area of memory that
// both have mapped; an argument names a piece of it. Handles are the host's numbers, of one kind
// each; it checks them before it uses them. A message that is malformed ends the host.

#include <stdint.h>

enum {
  kHostSocket = 3,  // files of the host
  kHostArea = 4,
  kHostLife =
      5,  // a socket on which nothing is sent: when the worker's end is gone, so is the host
  kHostAreaBytes = 16 << 20,
  kHostMostArguments = 13,
  kHostMagic = 0x32485652,  // "RVH2"
  // Codes with which the host ends.
  kHostEndedWell = 0,
  kHostHasBadArguments = 2,
  kHostGotNonsense = 3,
  kHostHasNoMemory = 4,
  kHostLoadedNothing = 5,
};

// Facts of OpenCL 1.2, whose headers only the worker's side has: it compares them
// (opencl/hosted/objects.cc).
enum {
  kOpenClPlatformProperty = 0x1084,
  kOpenClBinarySizes = 0x1165,
  kOpenClBinaries = 0x1166,
  kOpenClKernelProgram = 0x1194,
  kOpenClImageShapeBytes = 72,
  kOpenClImageBufferAt = 64,  // offset of cl_image_desc::buffer
};

// Value of a piece of the area that is not there (a null pointer).
#define HOST_NO_PIECE UINT64_MAX
// In the value of an argument that may be bytes or a handle: it is a handle.
#define HOST_IS_HANDLE (UINT64_C(1) << 63)

// A number, a handle (0: null), or a piece of the area: its offset and its bytes.
struct HostArgument {
  uint64_t value;
  uint64_t bytes;
};

struct HostRequest {
  uint32_t magic;
  uint32_t sequence;
  uint32_t function;  // its row
  uint32_t arguments;
  struct HostArgument argument[kHostMostArguments];
};

struct HostReply {
  uint32_t magic;
  uint32_t sequence;
  int64_t result;    // the function's, or a new handle
  int32_t error;     // what the function wrote to its argument of errors
  uint32_t refused;  // 1: a handle is none, so nothing was called
};

// The first reply's result: number of the candidate that was loaded. Its sequence is 0, and the
// area begins with a text: a line for each candidate that failed.

// Kinds of arguments, a letter each, behind the kind of the result:
//   i     a code               d     a code; if it is 0, the first argument's handle is gone
//   X     a new handle of kind X, of a pointer that is not null
// and of the arguments:
//   X     a handle             *X    an array of handles          >X  an array that gets handles
//   v     a number             0, 1, 8   this number              k, j  a constant of OpenCL
//   b     bytes                s     a text with its end          f, g, m  8, 24, 72 bytes
//   o     room for bytes       w, W  room for 4 or 8 bytes        e   the reply's `error`
//   n     bytes of the next argument that is bytes                r   and of the one before
//   N     length of the next array
//   p     address of a pointer to bytes                           z   address of their number
//   q     address of a pointer to room for a program's binary
//   c     properties of a context
//   a     bytes, or the handle of a memory object
// Kinds of handles are upper-case letters: Platform, Device, Context, Queue, pRogram, Kernel, Memory.
struct HostFunction {
  const char* name;
  const char* kinds;
};
