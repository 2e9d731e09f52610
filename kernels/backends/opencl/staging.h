#pragma once

// Places of the operands of a program's part on the device: an area of the stage, or for host
// memory that memory itself (on a device that shares it) or a copy.

#include <array>
#include <memory>

#include "absl/status/status.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/opencl/device/area.h"
#include "kernels/backends/opencl/device/launch.h"
#include "kernels/ir/program.h"

namespace runnel::opencl {

// For one executable.
class Staging {
 public:
  // `program` outlives it.
  Staging(const Program& program, std::shared_ptr<Session> session, std::shared_ptr<Areas> areas);

  // Makes host memory that the part uses visible to the device. ResourceExhausted, Unavailable.
  absl::Status Enter(Part part, const Bindings& bindings);
  // Makes the part's writes visible in host memory. Waits for the device if the part used any host
  // memory, which then belongs to the owner again. Unavailable.
  absl::Status Leave(Part part, const Bindings& bindings);
  // After an error in between: waits until the device no longer uses the host's memory.
  void Abandon();

  TensorRef At(BufferIndex index) const;

 private:
  // A part's use of a storage.
  struct Use {
    int64_t bytes = 0;  // up to the end of the last operand; 0: nothing
    bool is_written = false;
  };
  void Note(Part part, const Instruction& instruction);
  absl::Status PlaceHostMemory(Storage storage, const Use& use, std::byte* base);
  absl::Status CopyIn(Part part, const Bindings& bindings);
  absl::Status CopyOut(Part part, const Bindings& bindings);
  absl::Status ShowHost(Part part);
  bool IsHosts(Storage storage) const { return is_hosts_[static_cast<int>(storage)]; }

  const Program& program_;
  const std::shared_ptr<Session> session_;
  const std::shared_ptr<Areas> areas_;
  std::array<std::array<Use, kStorageCount>, kPartCount> uses_ = {};
  // Places for the running part.
  std::array<cl_mem, kStorageCount> places_ = {};
  std::array<bool, kStorageCount> is_hosts_ = {};
  // Host memory for a part, or its copies, which are kept.
  std::array<DeviceBuffer, kStorageCount> buffers_;
  std::array<int64_t, kStorageCount> copy_bytes_ = {};
};

}  // namespace runnel::opencl
