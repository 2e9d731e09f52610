#include "worker/check/check_report.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace runnel {
namespace {

// What a backend is, and whether it may be used.
struct Finding {
  bool is_usable = false;
  std::string text;
};

std::string ArithmeticText(const absl::Status& checked) {
  if (checked.ok()) return "; integers as ref computes them";
  if (absl::IsUnimplemented(checked)) return "; no integer recipes";
  return absl::StrCat("; ", checked.message());
}

Finding Examine(const BackendRow& row, int threads, const BackendVerdicts& verdicts) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = row.make(threads);
  if (!backend.ok()) return {false, std::string(backend.status().message())};
  const std::string what = (*backend)->description();
  // The other ones are what tests of every build compare.
  if (!row.is_loaded()) return {true, what};
  const absl::Status checked = verdicts.CheckAnew(**backend);
  return {checked.ok() || absl::IsUnimplemented(checked),
          absl::StrCat(what, ArithmeticText(checked))};
}

}  // namespace

std::string CheckReport(int threads, const BackendVerdicts& verdicts) {
  std::string report = "backend  usable  device\n";
  for (const BackendRow& row : BuiltinBackends()) {
    Finding finding = Examine(row, threads, verdicts);
    absl::string_view text = finding.text;
    absl::ConsumePrefix(&text, absl::StrCat("backend ", row.name, ": "));
    absl::ConsumeSuffix(&text, "; take --backend cpu");
    absl::StrAppend(&report, absl::StrFormat("%-8s %-7s %s\n", std::string(row.name),
                                             finding.is_usable ? "yes" : "no",
                                             absl::StrReplaceAll(text, {{"\n", " "}})));
  }
  return report;
}

std::vector<std::string> OfferedBackends(int threads, const BackendVerdicts& verdicts,
                                         Logger& logger) {
  std::vector<std::string> offered;
  for (const std::string& name : BackendNames()) {
    absl::Status status;
    if (IsLoadedBackend(name) && verdicts.HasRefused(name)) {
      absl::StatusOr<std::unique_ptr<Backend>> backend = MakeBackend(name, threads);
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
