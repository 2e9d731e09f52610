#include "worker/check/check_report.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/check/processor_examination.h"

namespace runnel {
namespace {

ProcessorFacts Examine(const BackendRow& row, const BackendSettings& settings,
                       const BackendVerdicts& verdicts) {
  const absl::StatusOr<std::unique_ptr<Backend>> backend = row.make(settings);
  if (!backend.ok()) return FactsOfMissing(row, backend.status());
  // Backends on the host's processor are compared by the tests of every build.
  return FactsOf(**backend, row.is_loaded() ? verdicts.CheckAnew(**backend) : absl::OkStatus());
}

}  // namespace

std::string CheckReport(const BackendSettings& settings, const BackendVerdicts& verdicts) {
  std::string report = "backend  usable  device\n";
  for (const BackendRow& row : BuiltinBackends()) {
    const ProcessorFacts facts = Examine(row, settings, verdicts);
    absl::StrAppend(&report, absl::StrFormat("%-8s %-7s %s\n", facts.backend,
                                             UsableText(facts.state), ToText(facts)));
  }
  return report;
}

std::vector<std::string> OfferedBackends(const BackendSettings& settings,
                                         const BackendVerdicts& verdicts, Logger& logger) {
  std::vector<std::string> offered;
  for (const std::string& name : BackendNames(settings.options)) {
    absl::Status status;
    if (IsLoadedBackend(name) && verdicts.HasRefused(name)) {
      absl::StatusOr<std::unique_ptr<Backend>> backend = MakeBackend(name, settings);
      status = backend.ok() ? verdicts.Admit(**backend) : backend.status();
    }
    if (status.ok()) {
      offered.push_back(name);
    } else {
      logger.Log(Severity::kWarning, absl::StrCat("not offered: ", status.message()));
    }
  }
  return offered;
}

}  // namespace runnel
