#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/cli/lab/lab_commands.h"
#include "central/reports/codec_report.h"
#include "compress/codec.h"
#include "proto/base/status_macros.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

struct CodecsArguments {
  std::vector<std::string> codecs;  // empty: those of 2, 3, 4 and 8 bits
  int64_t repetitions = 9;
  std::string summary;
};

std::vector<std::string> UsualCodecs() {
  std::vector<std::string> usual;
  for (const CodecId& codec : ExampleCodecs()) {
    const double bits = codec.parameter.value_or(2);
    if (bits <= 4 || bits == 8) usual.push_back(codec.text());
  }
  return usual;
}

absl::Status Codecs(const CodecsArguments& arguments, const CommandContext& context) {
  if (!arguments.summary.empty() && arguments.summary != "-")
    RUNNEL_RETURN_IF_ERROR(CheckCanWrite(arguments.summary));
  CodecReportOptions options;
  options.codecs = arguments.codecs.empty() ? UsualCodecs() : arguments.codecs;
  options.repetitions = static_cast<int>(arguments.repetitions);
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<CodecReport> reports,
                          ReportCodecs(options, *context.clock));
  if (arguments.summary != "-") context.print(CodecReportText(reports));
  if (arguments.summary.empty()) return absl::OkStatus();
  const std::string json = CodecReportJson(reports);
  if (arguments.summary == "-") return WriteAll(STDOUT_FILENO, json, "standard output");
  return WriteFileAtomically(arguments.summary, {json});
}

}  // namespace

Subcommand AddCodecs(const Command& program) {
  const Command app =
      program.AddCommand("codecs", "Frame size, loss and speed of each codec on this host");
  const auto flags = std::make_shared<CodecsArguments>();
  app.Add("--codecs", flags->codecs,
          absl::StrCat("only these codecs, of ", absl::StrJoin(ExampleCodecNames(), ", "),
                       " (default: those of 2, 3, 4 and 8 bits)"))
      .WithCommas();
  app.Add("--repetitions", flags->repetitions, "timings in a median")
      .Between(int64_t{1}, int64_t{100'000})
      .ShowDefault();
  app.Add("--summary", flags->summary, kSummaryHelp);
  app.Footer(R"(
Examples:
  all codecs on this host
    runnel-lab codecs)");
  return {app, [flags](const CommandContext& context) { return Codecs(*flags, context); }};
}

}  // namespace runnel
