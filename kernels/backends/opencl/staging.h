#pragma once

// Places of the operands of a program's part on the device: an area of the stage, or for host
// memory a copy. Host memory holds what enters and leaves a stage; its copies lie in buffers that
// are made once. Host memory itself as a buffer (CL_MEM_USE_HOST_PTR) would be made and pinned anew
// for each micro-batch, and copied by the driver wherever its address is not aligned.

#include <array>
#include <memory>
#include <vector>

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

  // Copies what the part reads of host memory to the device. ResourceExhausted, Unavailable.
  absl::Status Enter(Part part, const Bindings& bindings);
  // Copies what the part wrote of host memory back, and waits for the device if it used any.
  // Unavailable.
  absl::Status Leave(Part part, const Bindings& bindings);
  // After an error in between: waits until the device no longer uses the host's memory.
  void Abandon();

  // Of a packed value with an odd tail, which says so.
  TensorRef At(BufferIndex index) const;

 private:
  // What a part does with the storages.
  struct Uses {
    // Bytes up to the end of the last operand; 0: it does not use the storage.
    std::array<int64_t, kStorageCount> bytes = {};
    std::vector<BufferIndex> read, written;  // each once
  };
  void Note(const Instruction& instruction, Uses* uses);
  absl::Status MakeRoom(int storage, int64_t bytes);
  absl::Status CopyIn(const Uses& uses, const Bindings& bindings);
  absl::Status CopyOut(const Uses& uses, const Bindings& bindings);
  bool IsHosts(Storage storage) const { return is_hosts_[static_cast<int>(storage)]; }

  const Program& program_;
  const std::shared_ptr<Session> session_;
  const std::shared_ptr<Areas> areas_;
  std::array<Uses, kPartCount> uses_;
  const std::vector<bool> packed_;  // FindPacked
  // Places for the running part.
  std::array<cl_mem, kStorageCount> places_ = {};
  std::array<bool, kStorageCount> is_hosts_ = {};
  std::array<DeviceBuffer, kStorageCount> copies_;
};

}  // namespace runnel::opencl
