#pragma once

// A context and its in-order queue on one device, with the kernels that were built for it.

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backends/opencl/device/device.h"
#include "kernels/backends/opencl/device/device_budget.h"
#include "kernels/backends/opencl/device/driver_watch.h"
#include "kernels/backends/opencl/device/handles.h"
#include "kernels/backends/opencl/device/program_files.h"
#include "kernels/backends/opencl/device/tile.h"

namespace runnel::opencl {

// One build of kernels.
struct ProgramId {
  // kDepthwise, kWinograd: of the text of products; kDepthwise without a tile.
  enum class Source : uint8_t {
    kIntegers,
    kFloats,
    kProduct,
    kDepthwise,
    kWinograd
  } source = Source::kIntegers;
  bool is_float = false;  // whether it is a product of floats
  Tile tile = {};         // tile of a product
  // A product of INT8 inference, fused with the kRequantizeCodes of its sums.
  bool gives_codes = false;

  friend auto operator<=>(const ProgramId&, const ProgramId&) = default;
};
inline constexpr ProgramId kIntegerElements = {ProgramId::Source::kIntegers};
inline constexpr ProgramId kFloatElements = {ProgramId::Source::kFloats};

// Whether it ends the process where opencl.stall_s says nothing: not on the host's processor, which
// may take long over a part.
DriverWatchOptions WatchOptionsOf(const Options& options, const DeviceInfo& device);

// Hash of all kernels' texts.
uint64_t KernelSourceHash();

// One thread at a time.
class Session {
 public:
  // Chooses the device and opens it; its buffers count against `budget`, null: one of its own by
  // the options. As ListDevices, ChooseDevice, CheckDevice and ChooseDot; InvalidArgument: an
  // option that is none; Unavailable: the driver refuses.
  static absl::StatusOr<std::shared_ptr<Session>> Open(
      const Options& options, std::shared_ptr<DeviceBudget> budget = nullptr);

  const DeviceInfo& device() const { return device_; }
  const DotRow& dot() const { return *dot_; }
  // The faster rows that the device says it has and does not compile, with its reasons; empty: none.
  const std::string& rejected_dots() const { return rejected_dots_; }
  const ProgramFiles& program_files() const { return program_files_; }
  const std::shared_ptr<DeviceBudget>& budget() const { return budget_; }
  // State lies in memory that the host sees without a copy.
  bool shares_memory() const { return shares_memory_; }
  // Products of floats read their weights as halves.
  bool has_half_weights() const { return halves_.weights; }
  // Kernels of floats take activations that are halves (CompileOptions::stash).
  bool has_half_activations() const { return halves_.activations; }
  cl_context context() const { return context_.get(); }
  cl_command_queue queue() const { return queue_.get(); }

  // The tuned tiles of this device, for programs prepared from now on.
  ChosenTiles& chosen_tiles() { return chosen_tiles_; }
  // Kernels that the device runs in smaller groups than their tile's alone, with what it said: registers may leave another
  // kernel its groups of the same tile.
  using KernelId = std::pair<ProgramId, std::string>;
  std::map<KernelId, std::string>& too_large_kernels() { return too_large_kernels_; }
  // Builds of Winograd that the driver's compiler refused, with what it said: not asked again.
  std::map<ProgramId, std::string>& refused_winograd() { return refused_winograd_; }
  // Tiles over which the driver hung before: no program takes one.
  std::set<Tile>& hung_tiles() { return hung_tiles_; }

  // Builds a program's kernels. FailedPrecondition: they do not compile, and the compiler's line. As Check: the device
  // is lost meanwhile.
  absl::Status Build(const ProgramId& program);
  // A kernel of a built program.
  absl::StatusOr<cl_kernel> KernelOf(const ProgramId& program, const char* name);
  // The largest group that the device runs a kernel in (its registers may leave fewer work-items
  // than DeviceInfo::max_work_group), and the number that groups should be multiples of. 0: the
  // driver does not say. As KernelOf.
  struct GroupSizes {
    int64_t most = 0;
    int64_t multiple = 0;
  };
  absl::StatusOr<GroupSizes> GroupSizesOf(const ProgramId& program, const char* name);

  // OK for CL_SUCCESS. Else Unavailable: the device is lost to us, from then on.
  absl::Status Check(cl_int code, absl::string_view what);
  const absl::Status& lost() const { return lost_; }
  // Waits until all that was enqueued is done.
  absl::Status Finish() {
    const DriverWatch::Call call(*watch_, "clFinish");
    return Check(clFinish(queue()), "clFinish");
  }
  // For calls that wait for the device.
  DriverWatch& watch() { return *watch_; }

 private:
  // The parts that are FP16.
  struct Halves {
    bool weights = false;
    bool activations = false;
  };
  Session(DeviceInfo device, const Options& options, bool shares_memory, const Halves& halves)
      : device_(std::move(device)),
        program_files_(options.programs),
        shares_memory_(shares_memory),
        halves_(halves),
        watch_(std::make_unique<DriverWatch>(device_.name, WatchOptionsOf(options, device_))) {}

  // Takes the first that compiles, else the last. As Check: the device is lost.
  absl::Status TakeDot(const std::vector<const DotRow*>& dots);
  std::string BuildOptionsOf(const ProgramId& program) const;

  const DeviceInfo device_;
  const ProgramFiles program_files_;
  const DotRow* dot_ = nullptr;
  std::string rejected_dots_;
  const bool shares_memory_;
  const Halves halves_;
  const std::unique_ptr<DriverWatch> watch_;
  std::shared_ptr<DeviceBudget> budget_;
  Handle<cl_context> context_;
  Handle<cl_command_queue> queue_;
  std::map<ProgramId, Handle<cl_program>> programs_;
  std::map<std::pair<ProgramId, std::string>, Handle<cl_kernel>> kernels_;
  ChosenTiles chosen_tiles_;
  std::map<KernelId, std::string> too_large_kernels_;
  std::map<ProgramId, std::string> refused_winograd_;
  std::set<Tile> hung_tiles_;
  absl::Status lost_;
};

// Compiles kernels for the session's device, or takes them as they were kept. Failures as those of Session::Build.
absl::StatusOr<Handle<cl_program>> Compile(Session& session, const std::string& source,
                                           const std::string& options);

}  // namespace runnel::opencl
