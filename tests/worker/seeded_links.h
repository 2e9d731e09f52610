#pragma once

// Links of a run with a seed alone: no levels, and samples only where they are given.

#include <memory>

#include "worker/link_codecs.h"

namespace runnel {

inline absl::StatusOr<std::unique_ptr<LinkCodecs>> SeededLinks(const Plan& plan, int stage,
                                                               uint64_t seed,
                                                               const NumberFormat& format = {},
                                                               int64_t dataset_samples = 0) {
  return LinkCodecs::Create(plan, stage, LinkRun{seed, dataset_samples}, format);
}

}  // namespace runnel
