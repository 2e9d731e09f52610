#include "worker/check/processor_examination.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "proto/base/host/host_processors.h"
#include "worker/measure/device_description.h"

namespace runnel {
namespace {

// Behind what a device did when it was tried; others' messages name theirs.
absl::string_view RemedyFor(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kDataLoss:
      return "; install another version of its driver";
    case absl::StatusCode::kResourceExhausted:
      return "; end what uses its memory, or raise --device-memory-mb";
    default:
      return "";
  }
}

// One line without what the listing says anyway.
std::string ReasonOf(absl::string_view backend, const absl::Status& status) {
  std::string text = absl::StrReplaceAll(status.message(), {{"\n", " "}});
  absl::string_view reason = text;
  absl::ConsumePrefix(&reason, absl::StrCat("backend ", backend, ": "));
  absl::ConsumeSuffix(&reason, "; take --backend cpu");
  return absl::StrCat(reason, RemedyFor(status.code()));
}

}  // namespace

ProcessorFacts FactsOf(const Backend& backend, const absl::Status& checked) {
  ProcessorFacts facts = backend.processor();
  if (facts.device.empty()) {
    facts.device = HostProcessorName();
    facts.compute_units = UsableHostProcessors();
    if (facts.note.empty()) facts.note = backend.description();
  }
  facts.state = ProcessorState::kReady;
  if (!IsLoadedBackend(facts.backend)) return facts;
  if (checked.ok()) {
    facts.state = ProcessorState::kChecked;
  } else if (absl::IsUnimplemented(checked)) {
    absl::StrAppend(&facts.note, facts.note.empty() ? "" : ", ", "no integer recipes");
  } else {
    facts.state = ProcessorState::kRefused;
    facts.note = ReasonOf(facts.backend, checked);
  }
  return facts;
}

ProcessorFacts FactsOfMissing(const BackendRow& row, const absl::Status& why) {
  return {.backend = std::string(row.name),
          .state = ProcessorState::kRefused,
          .note = ReasonOf(row.name, why)};
}

ProcessorFacts FactsOfUnopened(const BackendRow& row, const BackendOptions& options) {
  const bool is_measured = row.is_worth_measuring != nullptr && row.is_worth_measuring(options);
  return {.backend = std::string(row.name),
          .state = ProcessorState::kNotOpened,
          .note = is_measured ? "--backend auto measures it when integers are trained"
                              : "it is opened where --backend names it"};
}

}  // namespace runnel
