#include "proto/transport/control/processor_convert.h"

#include <string>
#include <utility>

#include "proto/base/status_macros.h"
#include "proto/transport/control/control_fields.h"

namespace runnel {

proto::ProcessorList ToProto(const std::vector<ProcessorFacts>& from) {
  return WriteFields<proto::ProcessorList>(ProcessorList{from});
}

absl::StatusOr<std::vector<ProcessorFacts>> FromProto(absl::string_view field,
                                                      proto::ProcessorList from) {
  RUNNEL_ASSIGN_OR_RETURN(ProcessorList list, ReadFields<ProcessorList>(from, {field}));
  return std::move(list.processors);
}

}  // namespace runnel
