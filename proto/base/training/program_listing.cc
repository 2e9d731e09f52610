#include "proto/base/training/program_listing.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace runnel {
namespace {

constexpr double kMs = 1e3;

void AppendLine(const ProgramLine& line, std::string* text) {
  const std::string where = line.instruction.empty() ? "" : absl::StrCat(line.layer, ".", line.op);
  absl::StrAppendFormat(text, "%-15s %7s  %-36s %-8s %10.3f", line.part, where,
                        line.instruction.empty() ? "(back to the host)" : line.instruction,
                        line.processor, line.seconds * kMs);
  if (line.switches) {
    absl::StrAppendFormat(text, " %10.3f %12d", line.switch_seconds * kMs, line.switch_bytes);
  }
  absl::StrAppend(text, "\n");
}

void AppendSum(const ProgramListing& listing, const std::string& part, std::string* text) {
  int switches = 0;
  std::vector<std::pair<std::string, int>> counts;
  for (const ProgramLine& line : listing.lines) {
    if (line.part != part) continue;
    switches += line.switches ? 1 : 0;
    if (line.instruction.empty()) continue;
    const auto known = std::find_if(counts.begin(), counts.end(), [&](const auto& count) {
      return count.first == line.processor;
    });
    if (known == counts.end()) {
      counts.emplace_back(line.processor, 1);
    } else {
      ++known->second;
    }
  }
  std::vector<std::string> shares;
  for (const auto& [processor, count] : counts)
    shares.push_back(absl::StrCat(count, " on ", processor));
  absl::StrAppendFormat(text, "%s: %.3f ms, %d switches, %s\n", part,
                        SecondsOf(listing, part) * kMs, switches, absl::StrJoin(shares, ", "));
}

}  // namespace

double SecondsOf(const ProgramListing& listing, const std::string& part) {
  double seconds = 0;
  for (const ProgramLine& line : listing.lines) {
    if (part.empty() || line.part == part) seconds += line.seconds + line.switch_seconds;
  }
  return seconds;
}

std::string ToText(const ProgramListing& listing) {
  std::string text = absl::StrCat("layers ", listing.first_layer, " to ", listing.last_layer,
                                  ", micro-batches of ", listing.samples, " samples on ",
                                  absl::StrJoin(listing.processors, ", "), "\n");
  absl::StrAppendFormat(&text, "%-15s %7s  %-36s %-8s %10s %10s %12s\n", "part", "op",
                        "instruction", "on", "ms", "switch ms", "switch bytes");
  std::vector<std::string> parts;
  for (const ProgramLine& line : listing.lines) {
    AppendLine(line, &text);
    if (parts.empty() || parts.back() != line.part) parts.push_back(line.part);
  }
  for (const std::string& part : parts) AppendSum(listing, part, &text);
  return text;
}

}  // namespace runnel
