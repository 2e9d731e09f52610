#pragma once

// The contract of a backend: what runs a program's instructions.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/backends/backend_traits.h"
#include "kernels/backends/lost_backend.h"
#include "kernels/backends/tuner.h"
#include "kernels/ir/program.h"
#include "kernels/ir/step_context.h"
#include "proto/base/backend_options.h"
#include "proto/base/plan/processor_facts.h"

namespace runnel {

// What the host does with the bytes that it maps.
enum class MapAccess : uint8_t { kRead, kReadWrite };

// An area of a backend's memory: a weight version, optimizer state, gradients, statistics, a stash, the
// scratch. All zero when made. Its bytes may lie on a device; the host sees them only while they
// are mapped. The backend that made it outlives it. One caller at a time, and neither Map nor the
// destructor while a Run is bound to it.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual int64_t bytes() const = 0;
  // The address for Bindings; 64-byte aligned where the host can address the memory, else a value
  // that only the backend understands.
  virtual std::byte* address() const = 0;
  // All bytes, for the host, up to Unmap; 64-byte aligned. No copy on backends of the host. At most
  // one Map at a time; writes under kRead are undefined. Unavailable: the device is lost.
  virtual absl::StatusOr<std::byte*> Map(MapAccess access) = 0;
  // Makes the host's writes visible to the next Run, which returns the error if the device cannot
  // take them.
  virtual void Unmap() = 0;
};

// A Map that is undone when it goes.
class Mapping {
 public:
  // Maps as Memory::Map does. `memory` outlives the mapping.
  static absl::StatusOr<Mapping> Of(Memory& memory, MapAccess access);
  Mapping(Mapping&& other) noexcept : memory_(std::move(other.memory_)), data_(other.data_) {}
  std::byte* data() const { return data_; }

 private:
  struct Unmapping {
    void operator()(Memory* memory) const { memory->Unmap(); }
  };
  Mapping(Memory& memory, std::byte* data) : memory_(&memory), data_(data) {}

  std::unique_ptr<Memory, Unmapping> memory_;
  std::byte* data_;
};

// Memory for one action, by storage. An area that the part does not touch may be null. Each has the
// size that Program and StateLayout say. kInput, kOutput, kOutputGradient, kInputGradient, kLabels
// and kMetrics are host memory, 64-byte aligned; the others are Memory::address() of areas that the
// backend allocated. (Backends of the host take any 64-byte aligned memory for them.) Read-only for
// the part: kInput, kOutputGradient, kLabels, kParameters, and in the backward kOutput.
struct Bindings {
  std::array<std::byte*, kStorageCount> base = {};

  std::byte*& operator[](Storage storage) { return base[static_cast<int>(storage)]; }
  std::byte* operator[](Storage storage) const { return base[static_cast<int>(storage)]; }
};

class Backend;

// A program made ready. Not thread-safe: one compute lane owns it. The result of a part is a
// function of the bound bytes and the context, the same on every call within one numerics class.
class Executable {
 public:
  virtual ~Executable() = default;
  // Internal if a kernel failed; an error that LostBackendOf knows (lost_backend.h) if the device
  // is gone or has no memory. Programs from CompileStage never fail for their shapes.
  virtual absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) = 0;
  // Extra device memory for copies between processors, beyond the bound areas.
  virtual int64_t memory_bytes() const { return 0; }
  // The one of several processors that computes the part's instruction of this number; it lives as
  // long as this. Null: the backend that prepared the program.
  virtual const Backend* processor_of(Part, size_t) const { return nullptr; }
};

// Settings of a backend.
struct BackendSettings {
  int threads = 1;  // compute threads of backends on the host's processor
  // Largest memory that a backend takes of its device; 0: all that the device has.
  int64_t device_memory_bytes = 0;
  BackendOptions options = {};
};

class Backend {
 public:
  virtual ~Backend() = default;
  // What it can do. Only a device that was lost and is had anew may change it.
  virtual BackendTraits traits() const = 0;
  absl::string_view name() const { return traits().name; }
  // MakeBackend sets it: as the table and option mac_pj say.
  const ProcessorEnergy& energy() const { return energy_; }
  void set_energy(const ProcessorEnergy& energy) { energy_ = energy; }
  std::string numerics_class() const { return traits().numerics_class; }
  // The device and how it computes, for people; one line. Another device, driver or way to compute
  // has another one.
  virtual std::string description() const { return numerics_class(); }
  // The description in parts, known once the backend is open. Host backends fill only
  // `dot_product`. `state` and `note` are set by the checker (worker/check).
  virtual ProcessorFacts processor() const { return {.backend = std::string(name())}; }
  // Tunes the kernels to the device; null where nothing can be tuned.
  virtual Tuner* tuner() { return nullptr; }
  // Null: single kernels are not timed.
  virtual KernelTimer* kernel_timer() { return nullptr; }
  // Memory for a stage's state and values; host memory unless a backend has its own. bytes >= 0.
  // ResourceExhausted: the device has no more (LostBackendOf, where it is not the host).
  virtual absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes);
  // Unimplemented names the first instruction that this backend does not have. `program` must
  // outlive the result.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) = 0;

 private:
  ProcessorEnergy energy_;
};

struct BackendRow {
  absl::string_view name;
  absl::string_view summary;  // text for --help and the device list
  absl::StatusOr<std::unique_ptr<Backend>> (*make)(const BackendSettings& settings);
  // Of a backend that needs more than this binary, which `make` starts or loads (a shared object,
  // host/loaded_backend.h; a program, hexagon/): whether that is there. Null: nothing more.
  bool (*is_installed)(absl::string_view name, const BackendOptions& options) = nullptr;
  // For a backend beside the processor: whether "auto" may prefer it, if it is faster. Null: never.
  // Loads nothing.
  bool (*is_worth_measuring)(const BackendOptions& options) = nullptr;
  // For a loaded backend: a text that changes when its driver or the places of its files may have;
  // loads nothing. Null: the loaded file is of this build.
  std::string (*driver_stamp)() = nullptr;
  bool has_floats = true;  // it computes recipes of floats
  double energy = 1;       // ProcessorEnergy::share

  bool is_loaded() const { return is_installed != nullptr; }
};

// The table, builtin_backends.cc: those that this build has, best first, then ref, then those that
// are loaded on request.
absl::Span<const BackendRow> BuiltinBackends();
// "auto" takes the first row; names with a comma are several (mixed/mixed_backend.h).
// InvalidArgument lists what there is, or names the shared object that
// is not there. settings.threads >= 1.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(absl::string_view name,
                                                     const BackendSettings& settings);
inline absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(absl::string_view name, int threads) {
  return MakeBackend(name, BackendSettings{.threads = threads});
}
// Names that may be asked for here. Loads nothing.
std::vector<std::string> BackendNames(const BackendOptions& options = {});
// Whether there is a row of this name that is_loaded.
bool IsLoadedBackend(absl::string_view name);
// Installed ones that "auto" measures beside the processor, where bytes do not depend on it.
std::vector<std::string> BackendsWorthMeasuring(const BackendOptions& options = {});
// A line for each installed backend that has a BackendRow::driver_stamp.
std::string DriverStamps();
// The backends that "auto" stands for otherwise: the first one that can run all of a stage.
std::vector<std::string> AutoBackendNames();

}  // namespace runnel
