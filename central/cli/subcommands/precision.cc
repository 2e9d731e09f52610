#include "proto/base/training/dials/precision.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "central/cli/subcommands/subcommand.h"
#include "central/planning/rules/loss_indicator.h"
#include "proto/base/status_macros.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

constexpr char kPrecisionExamples[] = R"(
Examples:
  where a run with these losses, one a period, would have turned
    runnel-central precision --losses losses.txt
  with a looser threshold
    runnel-central precision --losses losses.txt --precision pfq:4,8/8,8@0.1,,
  with the last turn after 60 % of the periods at the latest
    runnel-central precision --losses losses.txt --precision pfq:3,4,6,8/6,6,8,8@,,,0.6)";

constexpr size_t kMostLossBytes = size_t{64} << 20;

struct PrecisionArguments {
  std::string losses;
  std::string precision = "pfq:3,4,6,8/6,6,8,8";
};

absl::StatusOr<std::vector<double>> ReadLosses(const std::string& path) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMostLossBytes));
  std::vector<double> losses;
  for (absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(", \t\r\n"), absl::SkipEmpty())) {
    double loss = 0;
    if (!absl::SimpleAtod(word, &loss)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--losses ", path, ": '", absl::CHexEscape(word.substr(0, 40)),
          "' is no number; the file holds numbers alone, as the column `loss` of --log"));
    }
    losses.push_back(loss);
  }
  return losses;
}

std::string MovedText(const LossIndicator& indicator, double eps) {
  if (!indicator.distance().has_value()) return "";
  return absl::StrFormat(", moved %.4f, limit %.4f", *indicator.distance(), eps);
}

absl::Status PrintTurns(const PrecisionArguments& arguments, const CommandContext& context) {
  const auto wrong = [&](const absl::Status& status) {
    return absl::InvalidArgumentError(
        absl::StrCat("--precision ", arguments.precision, ": ", status.message()));
  };
  const absl::StatusOr<PrecisionSetting> setting = ParsePrecision(arguments.precision);
  if (!setting.ok()) return wrong(setting.status());
  if (setting->rule != "pfq")
    return wrong(absl::InvalidArgumentError("only pfq looks at losses; give pfq:FW,.../BW,..."));
  absl::StatusOr<LossIndicatorOptions> options = ParseLossIndicator(setting->rule_arguments);
  if (!options.ok()) return wrong(options.status());
  options->most_turns = static_cast<int64_t>(setting->levels.size()) - 1;
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<double> losses, ReadLosses(arguments.losses));
  LossIndicator indicator(*options);
  for (size_t i = 0; i < losses.size(); ++i) {
    const double eps = indicator.eps();
    const bool turns = indicator.Observe(
        losses[i], static_cast<double>(i + 1) / static_cast<double>(losses.size()));
    const GridBits& bits = setting->levels[static_cast<size_t>(indicator.turns())];
    context.print(absl::StrFormat("period %d: loss %g, scale %.4f%s%s", i + 1, losses[i],
                                  indicator.scale(), MovedText(indicator, eps),
                                  turns ? absl::StrCat(": turn to ", GridBitsText(bits)) : ""));
  }
  context.print(absl::StrCat(losses.size(), " periods, ", indicator.turns(), " turns"));
  return absl::OkStatus();
}

}  // namespace

Subcommand AddPrecision(const Command& program) {
  const Command app = program.AddCommand(
      "precision", "Show where --precision pfq would turn with the losses of a file");
  const auto arguments = std::make_shared<PrecisionArguments>();
  app.Add("--losses", arguments->losses, "file of numbers, the mean training loss of each period")
      .Required();
  app.Add("--precision", arguments->precision, "as train takes it").ShowDefault();
  app.Footer(kPrecisionExamples);
  return {app,
          [arguments](const CommandContext& context) { return PrintTurns(*arguments, context); }};
}

}  // namespace runnel
