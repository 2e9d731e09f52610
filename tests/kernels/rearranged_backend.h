#pragma once

// A backend behind another memory plan: programs are rewritten before they are prepared, and run on a
// stash and a scratch of their own, so that a stage's executor runs as it does in production. Bytes
// that mean nothing are 0xFF, no number in any floating type: areas before their first writer, what
// leaves, and gradients that the first micro-batch of a step overwrites.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/program.h"
#include "tests/kernels/rearranged_program.h"

namespace runnel {

struct RearrangedOptions {
  // Null: programs as they are.
  std::function<absl::StatusOr<Program>(const Program&)> rewrite = nullptr;
  // Boundaries of PoisonDeadValues, of the rewritten program. Null: nothing is destroyed within a part.
  std::function<BoundaryFn(const Program&)> boundaries = nullptr;
  bool masks_stash = true;  // false: programs keep whole values whatever the backend has
};

// What the executables of one backend have seen: the bytes of gradients after each part that makes
// them, in order, by the program's first layer and batch. Only of programs that have an update, and of
// backends whose memory the host addresses.
struct SeenGradients {
  std::map<std::pair<int, int64_t>, std::vector<std::string>> bytes;
};

class RearrangedBackend final : public Backend {
 public:
  // `backend` and `seen` (which may be null) outlive it.
  RearrangedBackend(Backend& backend, RearrangedOptions options, SeenGradients* seen = nullptr)
      : backend_(backend), options_(std::move(options)), seen_(seen) {}

  BackendTraits traits() const override {
    BackendTraits traits = backend_.traits();
    traits.masks_stash = traits.masks_stash && options_.masks_stash;
    return traits;
  }
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) override {
    return backend_.Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override;

 private:
  Backend& backend_;
  const RearrangedOptions options_;
  SeenGradients* const seen_;
};

}  // namespace runnel
