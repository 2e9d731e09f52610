#pragma once

// The contract of a backend: what runs a program's instructions.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/program.h"
#include "proto/base/ids.h"
#include "proto/base/training.h"

namespace runnel {

// What an action depends on beside its buffers. Random draws are keyed by run_seed, layer, op and
// sequence.
struct StepContext {
  uint64_t run_seed = 0;
  Sequence sequence;
  int64_t step_samples = 1;  // of the whole mini-batch: the loss gradient is divided by it
  bool accumulate =
      false;  // false: weight-gradients overwrite (first micro-batch of a step), true: they add
  double learning_rate = 0;
  double momentum = 0;
  double weight_decay = 0;
  GradientBits gradient_bits;  // integer recipes, in place of the learning rate
};

// Memory for one action, by storage. An area that the part does not touch may be null. Each is
// 64-byte aligned and has the size that Program and StateLayout say. Read-only for the part:
// kInput, kOutputGradient, kLabels, kParameters, and in the backward kOutput.
struct Bindings {
  std::array<std::byte*, kStorageCount> base = {};

  std::byte*& operator[](Storage storage) { return base[static_cast<int>(storage)]; }
  std::byte* operator[](Storage storage) const { return base[static_cast<int>(storage)]; }
};

// A program made ready. Not thread-safe: one compute lane owns it. The result of a part is a
// function of the bound bytes and the context, the same on every call within one numerics class.
class Executable {
 public:
  virtual ~Executable() = default;
  // Internal if a kernel failed. Programs from CompileStage never fail for their shapes.
  virtual absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual absl::string_view name() const = 0;
  // Within one class a floating-point program gives the same bytes: "torch-1.13.1/avx512/threads1".
  virtual std::string numerics_class() const = 0;
  // Whether programs compiled with CompileOptions::recomputes run faster here.
  virtual bool recomputes() const { return false; }
  // Unimplemented names the first instruction that this backend does not have. `program` must
  // outlive the result.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) = 0;
};

struct BackendRow {
  absl::string_view name;
  absl::string_view summary;  // for --help and the device list
  absl::StatusOr<std::unique_ptr<Backend>> (*make)(int threads);
};

// The table, builtin_backends.cc: those that this build has, best first, ref last.
absl::Span<const BackendRow> BuiltinBackends();
// "auto" takes the first row. InvalidArgument lists what there is. threads >= 1.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(absl::string_view name, int threads);
std::vector<std::string> BackendNames();

}  // namespace runnel
