// Tells the thread sanitizer what gRPC and Abseil do between threads. Debian's libraries are not
// instrumented: what is handed over under their locks, or given to a call and taken with its
// answer, would look like a race. Loaded before the libraries of the processes that deploy/test.sh
// --preset tsan --processes starts.

#include <dlfcn.h>
#include <grpc/grpc.h>

#include "absl/synchronization/mutex.h"

// Of the program that loads this; none in one that nobody watches.
extern "C" {
__attribute__((weak)) void __tsan_acquire(void* address);
__attribute__((weak)) void __tsan_release(void* address);
}

namespace {

void Acquired(void* what) {
  if (__tsan_acquire != nullptr) __tsan_acquire(what);
}
void Releases(void* what) {
  if (__tsan_release != nullptr) __tsan_release(what);
}

// The library's function behind ours of the same name.
template <typename Function>
Function BehindOurs(void* ours) {
  Dl_info info = {};
  dladdr(ours, &info);
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, info.dli_sname));
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

// A member function is called like one whose first argument is the object.
void Mutex::Lock() {
  static const auto next = BehindOurs<void (*)(Mutex*)>(reinterpret_cast<void*>(&Mutex::Lock));
  next(this);
  Acquired(this);
}

void Mutex::Unlock() {
  static const auto next = BehindOurs<void (*)(Mutex*)>(reinterpret_cast<void*>(&Mutex::Unlock));
  Releases(this);
  next(this);
}

bool Mutex::TryLock() {
  static const auto next = BehindOurs<bool (*)(Mutex*)>(reinterpret_cast<void*>(&Mutex::TryLock));
  const bool locked = next(this);
  if (locked) Acquired(this);
  return locked;
}

void CondVar::Wait(Mutex* mutex) {
  static const auto next =
      BehindOurs<void (*)(CondVar*, Mutex*)>(reinterpret_cast<void*>(&CondVar::Wait));
  Releases(mutex);
  next(this, mutex);
  Acquired(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const auto next = BehindOurs<bool (*)(CondVar*, Mutex*, Duration)>(
      reinterpret_cast<void*>(&CondVar::WaitWithTimeout));
  Releases(mutex);
  const bool timed_out = next(this, mutex, timeout);
  Acquired(mutex);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const auto next = BehindOurs<bool (*)(CondVar*, Mutex*, Time)>(
      reinterpret_cast<void*>(&CondVar::WaitWithDeadline));
  Releases(mutex);
  const bool timed_out = next(this, mutex, deadline);
  Acquired(mutex);
  return timed_out;
}

ABSL_NAMESPACE_END
}  // namespace absl

// Whoever takes the event of a tag sees what was done before its operations began.
extern "C" grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count,
                                                 void* tag, void* reserved) {
  using Function = grpc_call_error (*)(grpc_call*, const grpc_op*, size_t, void*, void*);
  static const auto next = BehindOurs<Function>(reinterpret_cast<void*>(&grpc_call_start_batch));
  Releases(tag);
  return next(call, ops, count, tag, reserved);
}

extern "C" grpc_event grpc_completion_queue_next(grpc_completion_queue* queue,
                                                 gpr_timespec deadline, void* reserved) {
  using Function = grpc_event (*)(grpc_completion_queue*, gpr_timespec, void*);
  static const auto next =
      BehindOurs<Function>(reinterpret_cast<void*>(&grpc_completion_queue_next));
  const grpc_event event = next(queue, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) Acquired(event.tag);
  return event;
}
