// Loads a vendor's library that its worker cannot load (a static program loads none, and one of glibc
// none of Android's), and calls its functions for the worker: host_wire.h.
//
//   runnel-vendor-host opencl LIBRARY...      with files 3 (a socket), 4 (the area) and 5 (of the worker's life)
//
// Takes the first library that has the functions. Needs of the system's C library what
// android_symbols.txt lists, so that it can be linked for Android without its NDK; never on a phone.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/backends/vendor_host/host_handles.h"
#include "kernels/backends/vendor_host/host_wire.h"

static const struct HostFunction kOpenClFunctions[] = {
#define HOST_FUNCTION(row, name, kinds) {name, kinds},
#include "kernels/backends/vendor_host/opencl_functions.inc"
#undef HOST_FUNCTION
};

enum { kMostProperties = 16 };

struct Library {
  const char* name;
  const struct HostFunction* functions;
  uint32_t count;
};
static const struct Library kLibraries[] = {
    {"opencl", kOpenClFunctions, sizeof kOpenClFunctions / sizeof kOpenClFunctions[0]},
};

enum { kMostFunctions = 64 };

static struct {
  const struct Library* library;
  void* functions[kMostFunctions];
  unsigned char* area;
} host;

// What a call needs beside its arguments' words.
struct Call {
  const char* kind[kHostMostArguments];  // letter of each argument
  uint64_t word[kHostMostArguments];
  void* pointer[kHostMostArguments];  // what addresses of pointers lead to
  uint64_t size[kHostMostArguments];
  uint64_t properties[kMostProperties];
  int32_t error;
  int refused;
};

static void Check(int is_right) {
  if (!is_right) _exit(kHostGotNonsense);
}

static int IsHandleKind(char kind) { return kind >= 'A' && kind <= 'Z' && !strchr("NW", kind); }

static void* Piece(const struct HostArgument* argument) {
  if (argument->value == HOST_NO_PIECE) return NULL;
  Check(argument->value <= kHostAreaBytes && argument->value % 8 == 0 &&
        argument->bytes <= kHostAreaBytes - argument->value);
  return host.area + argument->value;
}

// Of exactly so many bytes, or null.
static void* PieceOf(const struct HostArgument* argument, uint64_t bytes) {
  Check(argument->value == HOST_NO_PIECE || argument->bytes == bytes);
  return Piece(argument);
}

static void* Object(struct Call* call, char kind, uint64_t number) {
  if (number == 0) return NULL;
  void* object = ObjectOf(kind, number);
  if (object == NULL) call->refused = 1;
  return object;
}

// Numbers of handles become the objects, in place.
static void* Objects(struct Call* call, char kind, const struct HostArgument* argument) {
  uint64_t* numbers = Piece(argument);
  Check(argument->bytes % 8 == 0);
  for (uint64_t i = 0; numbers != NULL && i < argument->bytes / 8; ++i)
    numbers[i] = (uint64_t)(uintptr_t)Object(call, kind, numbers[i]);
  return numbers;
}

// Pairs of a name and a value, then 0.
static void* Properties(struct Call* call, const struct HostArgument* argument) {
  const uint64_t* given = Piece(argument);
  if (given == NULL) return NULL;
  const uint64_t count = argument->bytes / 8;
  Check(argument->bytes % 8 == 0 && count % 2 == 1 && count <= kMostProperties);
  memcpy(call->properties, given, argument->bytes);
  Check(call->properties[count - 1] == 0);
  for (uint64_t i = 0; i + 1 < count; i += 2) {
    Check(call->properties[i] == kOpenClPlatformProperty);
    call->properties[i + 1] = (uint64_t)(uintptr_t)Object(call, 'P', call->properties[i + 1]);
  }
  return call->properties;
}

static void* ImageShape(struct Call* call, const struct HostArgument* argument) {
  unsigned char* shape = PieceOf(argument, kOpenClImageShapeBytes);
  Check(shape != NULL);
  uint64_t number = 0;
  memcpy(&number, shape + kOpenClImageBufferAt, sizeof number);
  const uint64_t object = (uint64_t)(uintptr_t)Object(call, 'M', number);
  memcpy(shape + kOpenClImageBufferAt, &object, sizeof object);
  return shape;
}

// Its index; -1: there is none in this direction.
static int Nearest(const struct Call* call, int from, int step, int count, const char* kinds) {
  for (int i = from + step; i >= 0 && i < count; i += step) {
    if (strchr(kinds, *call->kind[i]) != NULL) return i;
  }
  return -1;
}

static uint64_t BytesOf(const struct HostArgument* argument) {
  return argument->value == HOST_NO_PIECE ? 0 : argument->bytes;
}

// A number that says how large another argument is.
static uint64_t Measure(const struct Call* call, const struct HostRequest* request, int at) {
  const int count = (int)request->arguments;
  const char kind = *call->kind[at];
  const int other = kind == 'N'   ? Nearest(call, at, 1, count, "*>")
                    : kind == 'r' ? Nearest(call, at, -1, count, "bo")
                                  : Nearest(call, at, 1, count, "boa");
  Check(other >= 0);
  const struct HostArgument* argument = &request->argument[other];
  if (kind == 'N') return BytesOf(argument) / 8;
  if (*call->kind[other] == 'a' && (argument->value & HOST_IS_HANDLE) != 0) return 8;
  return BytesOf(argument);
}

static void* Address(struct Call* call, const struct HostRequest* request, int at) {
  const struct HostArgument* argument = &request->argument[at];
  switch (*call->kind[at]) {
    case 's': {
      const char* text = Piece(argument);
      Check(text == NULL || (argument->bytes > 0 && text[argument->bytes - 1] == 0));
      return (void*)text;
    }
    case 'b':
    case 'o':
      return Piece(argument);
    case 'f':
      return PieceOf(argument, 8);
    case 'g':
      return PieceOf(argument, 24);
    case 'w':
      return PieceOf(argument, 4);
    case 'W':
      return PieceOf(argument, 8);
    case 'e':
      return &call->error;
    case 'm':
      return ImageShape(call, argument);
    case 'c':
      return Properties(call, argument);
    case 'p':
    case 'q':
      call->pointer[at] = Piece(argument);
      Check(call->pointer[at] != NULL);
      return &call->pointer[at];
    case 'z': {
      int bytes = Nearest(call, at, 1, (int)request->arguments, "p");
      if (bytes < 0) bytes = Nearest(call, at, -1, (int)request->arguments, "p");
      Check(bytes >= 0);
      call->size[at] = request->argument[bytes].bytes;
      return &call->size[at];
    }
    case 'a':
      if ((argument->value & HOST_IS_HANDLE) == 0 || argument->value == HOST_NO_PIECE)
        return Piece(argument);
      call->pointer[at] = Object(call, 'M', argument->value & ~HOST_IS_HANDLE);
      return &call->pointer[at];
    case '>': {
      Check(argument->bytes % 8 == 0);
      return Piece(argument);
    }
    default:
      return Objects(call, call->kind[at][1], argument);
  }
}

static uint64_t Word(struct Call* call, const struct HostRequest* request, int at) {
  const char kind = *call->kind[at];
  switch (kind) {
    case 'v':
      return request->argument[at].value;
    case '0':
    case '1':
    case '8':
      return (uint64_t)(kind - '0');
    case 'k':
      return kOpenClBinaries;
    case 'j':
      return kOpenClKernelProgram;
    case 'n':
    case 'r':
    case 'N':
      return Measure(call, request, at);
    default:
      break;
  }
  return (uint64_t)(uintptr_t)(IsHandleKind(kind) ? Object(call, kind, request->argument[at].value)
                                                  : Address(call, request, at));
}

static void ReadKinds(const char* kinds, const struct HostRequest* request, struct Call* call) {
  uint32_t count = 0;
  for (const char* at = kinds + 1; *at != 0; at += *at == '*' || *at == '>' ? 2 : 1) {
    Check(count < kHostMostArguments);
    call->kind[count++] = at;
  }
  Check(request->arguments == count);
}

typedef uint64_t (*AnyFunction)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                uint64_t);

// Arguments are numbers and pointers alone, each of which takes a register or eight bytes of the
// stack on x86-64 and arm64: a function ignores the words behind its own.
static uint64_t Invoke(void* function, const uint64_t* w) {
  AnyFunction any;
  memcpy(&any, &function, sizeof any);
  return any(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12]);
}

// A driver writes a whole binary, however large the room is.
static int BinaryFits(void* function, const struct Call* call, const struct HostRequest* request) {
  uint64_t size = 0;
  const uint64_t words[kHostMostArguments] = {call->word[0], kOpenClBinarySizes, 8,
                                              (uint64_t)(uintptr_t)&size};
  if ((int32_t)Invoke(function, words) != 0) return 0;
  const int room = Nearest(call, -1, 1, (int)request->arguments, "q");
  return size <= BytesOf(&request->argument[room]);
}

// Objects that the function gave become numbers.
static void GiveHandles(const struct Call* call, const struct HostRequest* request) {
  for (uint32_t i = 0; i < request->arguments; ++i) {
    if (*call->kind[i] != '>' || call->word[i] == 0) continue;
    uint64_t* objects = (uint64_t*)(uintptr_t)call->word[i];
    for (uint64_t k = 0; k < request->argument[i].bytes / 8; ++k)
      objects[k] = HandleOf(call->kind[i][1], (void*)(uintptr_t)objects[k]);
  }
}

static void Serve(const struct HostRequest* request, struct HostReply* reply) {
  Check(request->magic == kHostMagic && request->function < host.library->count);
  const struct HostFunction* row = &host.library->functions[request->function];
  void* function = host.functions[request->function];
  struct Call call;
  memset(&call, 0, sizeof call);
  ReadKinds(row->kinds, request, &call);
  for (uint32_t i = 0; i < request->arguments; ++i) call.word[i] = Word(&call, request, (int)i);
  // Arrays that the function may leave as they are hold no numbers of before.
  for (uint32_t i = 0; i < request->arguments; ++i) {
    if (*call.kind[i] == '>' && call.word[i] != 0)
      memset((void*)(uintptr_t)call.word[i], 0, request->argument[i].bytes);
  }
  const int gives_binary = Nearest(&call, -1, 1, (int)request->arguments, "q") >= 0;
  // Else names of values that are pointers, through which a driver would write.
  for (uint32_t i = 0; i < request->arguments && !gives_binary; ++i) {
    if (row->kinds[1] == 'R' && *call.kind[i] == 'v' && call.word[i] == kOpenClBinaries)
      call.refused = 1;
  }
  reply->refused = call.refused || (gives_binary && !BinaryFits(function, &call, request)) ? 1 : 0;
  if (reply->refused) return;
  const uint64_t result = Invoke(function, call.word);
  reply->error = call.error;
  const char kind = row->kinds[0];
  if (IsHandleKind(kind)) {
    reply->result = result == 0 ? 0 : (int64_t)AddHandle(kind, (void*)(uintptr_t)result);
    return;
  }
  reply->result = (int32_t)result;
  if (reply->result != 0) return;
  if (kind == 'd') DropHandle(row->kinds[1], request->argument[0].value);
  GiveHandles(&call, request);
}

// Texts that do not fit are cut.
static void Say(uint32_t* at, const char* text) {
  while (*text != 0 && *at + 1 < kHostAreaBytes) host.area[(*at)++] = (unsigned char)*text++;
  host.area[*at] = 0;
}

// A linker's words may begin with the name itself.
static const char* WithoutName(const char* why, const char* name) {
  const char* at = why;
  while (*name != 0 && *at == *name) ++at, ++name;
  return *name == 0 && at[0] == ':' && at[1] == ' ' ? at + 2 : why;
}

static int TakeLibrary(const char* path, uint32_t* at) {
  void* loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const char* why = loaded == NULL ? dlerror() : NULL;
  const char* missing = NULL;
  for (uint32_t i = 0; loaded != NULL && i < host.library->count; ++i) {
    host.functions[i] = dlsym(loaded, host.library->functions[i].name);
    if (host.functions[i] == NULL && missing == NULL) missing = host.library->functions[i].name;
  }
  if (loaded != NULL && missing == NULL) return 1;
  Say(at, path);
  Say(at, missing != NULL ? ": has no " : ": ");
  Say(at, missing != NULL ? missing : why != NULL ? WithoutName(why, path) : "no reason given");
  Say(at, "\n");
  if (loaded != NULL) dlclose(loaded);
  return 0;
}

static int Load(int count, char** paths) {
  uint32_t at = 0;
  host.area[0] = 0;
  for (int i = 0; i < count; ++i) {
    if (TakeLibrary(paths[i], &at)) return i;
  }
  return -1;
}

static void Send(const struct HostReply* reply) {
  ssize_t sent = 0;
  do {
    sent = send(kHostSocket, reply, sizeof *reply, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != (ssize_t)sizeof *reply) _exit(kHostEndedWell);
}

// A driver may have signals of its own.
static ssize_t Receive(struct HostRequest* request) {
  ssize_t got = 0;
  do {
    got = recv(kHostSocket, request, sizeof *request, MSG_TRUNC);
  } while (got < 0 && errno == EINTR);
  return got;
}

// From here on the kernel kills this process when the worker's end of kHostLife is closed, whatever a
// driver is at: in a call that does not return nobody reads kHostSocket. PR_SET_PDEATHSIG would also
// kill it when the worker's thread that started it ends. 0: the file is not there.
static int EndWithTheWorker(void) {
  char none = 0;
  if (fcntl(kHostLife, F_SETFD, FD_CLOEXEC) != 0 || fcntl(kHostLife, F_SETSIG, SIGKILL) != 0 ||
      fcntl(kHostLife, F_SETOWN, getpid()) != 0 || fcntl(kHostLife, F_SETFL, O_ASYNC) != 0)
    return 0;
  // It may have ended before.
  if (recv(kHostLife, &none, sizeof none, MSG_DONTWAIT) == 0) _exit(kHostEndedWell);
  return 1;
}

int main(int count, char** words) {
  for (size_t i = 0; count > 1 && i < sizeof kLibraries / sizeof kLibraries[0]; ++i) {
    if (strcmp(words[1], kLibraries[i].name) == 0) host.library = &kLibraries[i];
  }
  if (host.library == NULL || host.library->count > kMostFunctions) return kHostHasBadArguments;
  if (!EndWithTheWorker()) return kHostHasBadArguments;
  // What a driver starts inherits none of them.
  fcntl(kHostSocket, F_SETFD, FD_CLOEXEC);
  fcntl(kHostArea, F_SETFD, FD_CLOEXEC);
  if (lseek(kHostArea, 0, SEEK_END) != kHostAreaBytes) return kHostHasBadArguments;
  host.area = mmap(NULL, kHostAreaBytes, PROT_READ | PROT_WRITE, MAP_SHARED, kHostArea, 0);
  if (host.area == MAP_FAILED) return kHostHasBadArguments;
  const int loaded = Load(count - 2, words + 2);
  struct HostReply reply = {kHostMagic, 0, loaded, 0, 0};
  Send(&reply);
  if (loaded < 0) return kHostLoadedNothing;
  for (;;) {
    struct HostRequest request;
    const ssize_t got = Receive(&request);
    // Without what a driver does when its process ends: nobody waits for that.
    if (got <= 0) _exit(kHostEndedWell);
    Check(got == (ssize_t)sizeof request);
    memset(&reply, 0, sizeof reply);
    reply.magic = kHostMagic;
    reply.sequence = request.sequence;
    Serve(&request, &reply);
    Send(&reply);
  }
}
