#pragma once

// Facts of the processor behind a backend: for `runnel-worker --check`, for central, for
// `runnel-central devices`.

#include "absl/status/status.h"
#include "kernels/backends/backend.h"
#include "proto/base/plan/processor_facts.h"

namespace runnel {

// Facts of an open backend. checked: the verdict of CheckBackend (backend_check.h); OK for a
// backend on the host's processor in this program, which is not checked.
ProcessorFacts FactsOf(const Backend& backend, const absl::Status& checked);
// Facts of a backend that cannot be opened, with the reason as one line.
ProcessorFacts FactsOfMissing(const BackendRow& row, const absl::Status& why);
// Facts of an installed backend that nothing has opened, and when it will be opened. Loads nothing.
ProcessorFacts FactsOfUnopened(const BackendRow& row, const BackendOptions& options);

}  // namespace runnel
