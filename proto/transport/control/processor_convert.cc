#include "proto/transport/control/processor_convert.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/transport/control/wire_check.h"

namespace runnel {
namespace {

// Far above any processor's units.
constexpr int64_t kMaxUnits = int64_t{1} << 24;
constexpr int64_t kMaxMemory = int64_t{1} << 56;

absl::Status CheckProcessor(absl::string_view list, const proto::Processor& from) {
  const auto field = [&](const char* name) { return absl::StrCat(list, ".", name); };
  RUNNEL_RETURN_IF_ERROR(CheckName(field("backend"), from.backend()));
  RUNNEL_RETURN_IF_ERROR(CheckRange(field("state"), from.state(), 0, kProcessorStateCount - 1));
  RUNNEL_RETURN_IF_ERROR(CheckText(field("device"), from.device()));
  RUNNEL_RETURN_IF_ERROR(CheckText(field("driver"), from.driver()));
  RUNNEL_RETURN_IF_ERROR(CheckRange(field("compute_units"), from.compute_units(), 0, kMaxUnits));
  RUNNEL_RETURN_IF_ERROR(CheckRange(field("memory_bytes"), from.memory_bytes(), 0, kMaxMemory));
  RUNNEL_RETURN_IF_ERROR(CheckText(field("dot_product"), from.dot_product()));
  return CheckText(field("note"), from.note());
}

}  // namespace

proto::ProcessorList ToProto(const std::vector<ProcessorFacts>& from) {
  proto::ProcessorList list;
  for (const ProcessorFacts& facts : from) {
    proto::Processor& processor = *list.add_processors();
    processor.set_backend(CleanUtf8(facts.backend, kMaxTextBytes));
    processor.set_state(static_cast<uint32_t>(facts.state));
    processor.set_device(CleanUtf8(facts.device, kMaxTextBytes));
    processor.set_driver(CleanUtf8(facts.driver, kMaxTextBytes));
    processor.set_compute_units(facts.compute_units);
    processor.set_memory_bytes(facts.memory_bytes);
    processor.set_dot_product(CleanUtf8(facts.dot_product, kMaxTextBytes));
    processor.set_is_emulated(facts.is_emulated);
    processor.set_note(CleanUtf8(facts.note, kMaxTextBytes));
  }
  return list;
}

absl::StatusOr<std::vector<ProcessorFacts>> FromProto(absl::string_view field,
                                                      const proto::ProcessorList& from) {
  RUNNEL_RETURN_IF_ERROR(
      CheckCount(field, from.processors_size(), 0, static_cast<int64_t>(kMaxProcessorFacts)));
  std::vector<ProcessorFacts> facts;
  for (const proto::Processor& one : from.processors()) {
    RUNNEL_RETURN_IF_ERROR(CheckProcessor(field, one));
    facts.push_back({one.backend(), static_cast<ProcessorState>(one.state()), one.device(),
                     one.driver(), one.compute_units(), one.memory_bytes(), one.dot_product(),
                     one.is_emulated(), one.note()});
  }
  return facts;
}

}  // namespace runnel
