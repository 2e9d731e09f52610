#pragma once

// The worker's side of a vendor host (host_wire.h): starts it, and passes calls on. Any thread; a
// call waits for the one before.

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backends/vendor_host/host_wire.h"

namespace runnel {

struct HostProcessOptions {
  std::string program;
  std::string library;                  // "opencl": a row of the host's table
  std::vector<std::string> candidates;  // paths or names of libraries, best first
};

// Ends with the object, and with this process, however that ends.
class HostProcess {
 public:
  // Unavailable, one line: the program cannot be started, or each candidate with the reason for
  // which the host did not load it.
  static absl::StatusOr<std::unique_ptr<HostProcess>> Start(const HostProcessOptions& options);
  ~HostProcess();
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;

  const std::string& loaded() const { return loaded_; }
  pid_t pid() const { return pid_; }
  // Its process has ended, or answered with nonsense. Does not wait for a call.
  bool is_lost() const { return is_lost_; }
  // Bytes that were copied into and out of the area.
  int64_t copied_bytes() const;

 private:
  friend class HostCall;
  HostProcess() = default;

  absl::Status MakeArea();
  void ReleaseArea();
  absl::Status Spawn(const HostProcessOptions& options);
  absl::Status AwaitLibrary(const HostProcessOptions& options);
  // False: the host is lost, from then on, and its area gone. It says why on stderr, once.
  bool Exchange(HostRequest* request, HostReply* reply);
  enum class Answer : uint8_t { kWhole, kEnd, kNone, kNonsense };
  Answer Receive(HostReply* reply, uint32_t sequence, int timeout_ms);
  // Ends the process, after its last answer; what became of it.
  std::string End(Answer last);

  mutable std::mutex mutex_;
  std::string library_;
  std::string loaded_;
  std::byte* area_ = nullptr;  // null once the host is lost
  int area_file_ = -1;
  int socket_ = -1;
  int life_ = -1;  // closed: the kernel ends the host
  pid_t pid_ = -1;
  uint32_t sequence_ = 0;
  std::atomic<bool> is_lost_ = false;
  int64_t copied_bytes_ = 0;
};

// One call with its arguments in the function's order. Holds the host until it goes.
class HostCall {
 public:
  enum class Result : uint8_t { kDone, kRefused, kTooLarge, kLost };

  HostCall(HostProcess& host, uint32_t function);

  HostCall& Number(uint64_t value);
  // An argument whose value the host knows itself.
  HostCall& Fixed() { return Number(0); }
  // Null `data`: there is none.
  HostCall& In(const void* data, size_t bytes);
  // `data` has the bytes after a call that succeeded.
  HostCall& Out(void* data, size_t bytes);

  Result Send();
  // After kDone.
  const HostReply& reply() const { return reply_; }

 private:
  struct Room {
    void* data = nullptr;
    size_t bytes = 0;
    uint64_t offset = 0;
  };
  // Its offset.
  uint64_t Take(size_t bytes);

  HostProcess& host_;
  const std::unique_lock<std::mutex> lock_;
  HostRequest request_ = {};
  HostReply reply_ = {};
  std::vector<Room> rooms_;
  uint64_t used_ = 0;
  bool fits_ = true;
};

}  // namespace runnel
