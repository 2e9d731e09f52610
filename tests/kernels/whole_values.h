#pragma once

// What tests and benches compare masks of ReLUs with.

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"

namespace runnel {

// Another backend, which outlives it; its programs keep whole values (BackendTraits::masks_stash).
class WholeValues final : public Backend {
 public:
  explicit WholeValues(Backend& backend) : backend_(backend) {}

  BackendTraits traits() const override {
    BackendTraits traits = backend_.traits();
    traits.masks_stash = false;
    return traits;
  }
  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    return backend_.Prepare(program);
  }

 private:
  Backend& backend_;
};

}  // namespace runnel
