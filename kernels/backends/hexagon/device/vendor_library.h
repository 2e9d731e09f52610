#pragma once

// The functions of a phone's libcdsprpc.so (FastRPC) that a session needs, found when a process
// asks for them: nothing is linked. Their signatures and constants are facts of that library's
// public interface. Not verified on hardware.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace runnel::hexagon {

inline constexpr int kComputeDsp = 3;  // its domain

// A parameter of a remote call: buffers in, then buffers out.
struct RemoteArgument {
  void* data = nullptr;
  size_t bytes = 0;
};

// A part of a shared buffer that a packet refers to.
struct QueueBuffer {
  uint32_t file = 0;
  uint32_t bytes = 0;
  uint32_t offset = 0;
  uint32_t flags = 0;
  uint64_t address = 0;
};
// The sender's cache is written back, the recipient's forgets.
inline constexpr uint32_t kFlushSender = 0x10;
inline constexpr uint32_t kInvalidateRecipient = 0x80;
inline constexpr uint32_t kMaxQueueBuffers = 64;

// Errors have these low bits, whichever side they come from.
inline constexpr int kErrorBits = 0x3ff;
inline constexpr int kErrorExpired = 0x00c;

// Requests of remote_handle_control, remote_handle64_control and remote_session_control.
inline constexpr uint32_t kControlLatency = 1;
inline constexpr uint32_t kControlCapability = 2;
inline constexpr uint32_t kSessionThread = 1;
inline constexpr uint32_t kSessionUnsigned = 2;
inline constexpr uint32_t kSessionKill = 6;

struct VendorMemory {
  void* (*alloc)(int heap, uint32_t flags, int bytes) = nullptr;
  void (*free)(void* memory) = nullptr;
  int (*to_fd)(void* memory) = nullptr;
  int (*map)(int domain, int file, void* memory, int offset, size_t bytes, int flags) = nullptr;
  int (*unmap)(int domain, int file, void* memory, size_t bytes) = nullptr;
};

struct VendorCalls {
  int (*open)(const char* uri, uint64_t* handle) = nullptr;
  int (*close)(uint64_t handle) = nullptr;
  int (*invoke)(uint64_t handle, uint32_t scalars, RemoteArgument* arguments) = nullptr;
  int (*handle_control)(uint64_t handle, uint32_t request, void* data, uint32_t bytes) = nullptr;
  int (*control)(uint32_t request, void* data, uint32_t bytes) = nullptr;
  int (*session_control)(uint32_t request, void* data, uint32_t bytes) = nullptr;
};

// Older libraries have no queues.
struct VendorQueues {
  int (*create)(int domain, uint32_t flags, uint32_t request_bytes, uint32_t response_bytes,
                void* packet_callback, void* error_callback, void* context, void** queue) = nullptr;
  int (*close)(void* queue) = nullptr;
  int (*export_id)(void* queue, uint64_t* id) = nullptr;
  int (*write)(void* queue, uint32_t flags, uint32_t buffers, QueueBuffer* buffer, uint32_t bytes,
               const uint8_t* message, uint32_t timeout_us) = nullptr;
  int (*read)(void* queue, uint32_t* flags, uint32_t max_buffers, uint32_t* buffers,
              QueueBuffer* buffer, uint32_t max_bytes, uint32_t* bytes, uint8_t* message,
              uint32_t timeout_us) = nullptr;

  bool complete() const { return create && close && export_id && write && read; }
};

struct VendorLibrary {
  std::string path;
  VendorMemory memory;
  VendorCalls calls;
  VendorQueues queues;
};

// Path of the library: `given`, or, if that is empty, in one of the system's folders. A name
// without a folder is left to the system's loader. Loads nothing. NotFound: one line.
absl::StatusOr<std::string> FindVendorLibrary(const std::string& given);
// Loads it, for as long as the process lives. Unavailable, one line: it cannot be loaded, or has no
// function of some name.
absl::StatusOr<std::shared_ptr<const VendorLibrary>> LoadVendorLibrary(const std::string& path);

// "error 0x80000414 (not supported)".
std::string DescribeVendorError(int error);

}  // namespace runnel::hexagon
