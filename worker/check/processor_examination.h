#pragma once

// What is known of the processor behind a backend: for `runnel-worker --check`, for central, for
// `runnel-central devices`.

#include "absl/status/status.h"
#include "kernels/backends/backend.h"
#include "proto/base/plan/processor_facts.h"

namespace runnel {

// Of one that stands open. checked: what CheckBackend said of it (backend_check.h); one that
// computes on the host's processor as part of this program is not checked, and `checked` is OK.
ProcessorFacts FactsOf(const Backend& backend, const absl::Status& checked);
// Of one that cannot be had, with the reason as one line.
ProcessorFacts FactsOfMissing(const BackendRow& row, const absl::Status& why);
// Of one that is installed and that nothing has opened: when it will be. Loads nothing.
ProcessorFacts FactsOfUnopened(const BackendRow& row);

}  // namespace runnel
