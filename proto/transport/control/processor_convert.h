#pragma once

// ProcessorFacts as a protobuf message and back. Pure functions, any thread.

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/plan/processor_facts.h"
#include "proto/processor.pb.h"

namespace runnel {

proto::ProcessorList ToProto(const std::vector<ProcessorFacts>& from);
// `field` is where the list stands. InvalidArgument: too many, a text that is too long or has
// control characters, a number out of its range.
absl::StatusOr<std::vector<ProcessorFacts>> FromProto(absl::string_view field,
                                                      proto::ProcessorList from);

}  // namespace runnel
