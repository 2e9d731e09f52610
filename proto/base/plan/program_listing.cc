#include "proto/base/plan/program_listing.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace runnel {
namespace {

constexpr double kMs = 1e3;
constexpr double kShownMs = 5e-4;              // half of the last shown decimal
constexpr double kLeastOverlapSeconds = 1e-9;  // more than sums are rounded by

std::string PlaceOf(const ProgramLine& line) {
  return line.instruction.empty() ? "" : absl::StrCat(line.layer, ".", line.op);
}

// Times from the start of the listing.
struct Span {
  double begin_seconds = 0, end_seconds = 0;
};
std::vector<Span> SpansOf(const ProgramListing& listing) {
  std::vector<Span> spans;
  double part_begin = 0;
  std::string part;
  for (const ProgramLine& line : listing.lines) {
    if (line.part != part) {
      if (!part.empty()) part_begin += SecondsOf(listing, part);
      part = line.part;
    }
    const double begin = part_begin + line.begin_seconds;
    spans.push_back({begin, begin + line.switch_seconds + line.seconds});
  }
  return spans;
}

// "cpu 6.0 to 4.1": the first and the last instruction of each other processor at that time.
std::string Beside(const ProgramListing& listing, const std::vector<Span>& spans, size_t at) {
  struct Others {
    std::string processor, first, last;
  };
  std::vector<Others> others;
  for (size_t i = 0; i < spans.size(); ++i) {
    const ProgramLine& line = listing.lines[i];
    const bool is_beside = line.processor != listing.lines[at].processor &&
                           !line.instruction.empty() &&
                           std::min(spans[i].end_seconds, spans[at].end_seconds) -
                                   std::max(spans[i].begin_seconds, spans[at].begin_seconds) >
                               kLeastOverlapSeconds;
    if (!is_beside) continue;
    const auto known = std::find_if(others.begin(), others.end(), [&](const Others& other) {
      return other.processor == line.processor;
    });
    if (known == others.end()) {
      others.push_back({line.processor, PlaceOf(line), PlaceOf(line)});
    } else {
      known->last = PlaceOf(line);
    }
  }
  std::vector<std::string> texts;
  for (const Others& other : others) {
    texts.push_back(absl::StrCat(other.processor, " ", other.first));
    if (other.last != other.first) absl::StrAppend(&texts.back(), " to ", other.last);
  }
  return absl::StrJoin(texts, ", ");
}

void AppendLine(const ProgramLine& line, const std::string& beside, std::string* text) {
  const std::string switched =
      line.switches ? absl::StrFormat("%10.3f %12d", line.switch_seconds * kMs, line.switch_bytes)
                    : "";
  std::string row = absl::StrFormat(
      "%-15s %7s  %-36s %-8s %10.3f %10.3f %-23s %s", line.part, PlaceOf(line),
      line.instruction.empty() ? "(back to the host)" : line.instruction, line.processor,
      line.begin_seconds * kMs, line.seconds * kMs, switched, beside);
  row.erase(row.find_last_not_of(' ') + 1);
  if (line.split > 0) absl::StrAppend(&row, "  in slices of ", line.split);
  absl::StrAppend(text, row, "\n");
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
  absl::StrAppendFormat(text, "%s: %.3f ms", part, SecondsOf(listing, part) * kMs);
  const double beside = WorkSecondsOf(listing, part) - SecondsOf(listing, part);
  if (beside * kMs >= kShownMs)
    absl::StrAppendFormat(text, " (%.3f more beside others)", beside * kMs);
  absl::StrAppendFormat(text, ", %d switches, %s\n", switches, absl::StrJoin(shares, ", "));
}

}  // namespace

double SecondsOf(const ProgramListing& listing, const std::string& part) {
  std::map<std::string, double> ends;
  for (const ProgramLine& line : listing.lines) {
    double& end = ends[line.part];
    end = std::max(end, line.begin_seconds + line.switch_seconds + line.seconds);
  }
  double seconds = 0;
  for (const auto& [name, end] : ends) {
    if (part.empty() || name == part) seconds += end;
  }
  return seconds;
}

double WorkSecondsOf(const ProgramListing& listing, const std::string& part) {
  double seconds = 0;
  for (const ProgramLine& line : listing.lines) {
    if (line.part == part) seconds += line.seconds + line.switch_seconds;
  }
  return seconds;
}

std::string ToText(const ProgramListing& listing) {
  std::string text = absl::StrCat("layers ", listing.first_layer, " to ", listing.last_layer,
                                  ", micro-batches of ", listing.samples, " samples on ",
                                  absl::StrJoin(listing.processors, ", "), "\n");
  absl::StrAppendFormat(&text, "%-15s %7s  %-36s %-8s %10s %10s %10s %12s %s\n", "part", "op",
                        "instruction", "on", "begins ms", "ms", "switch ms", "switch bytes",
                        "beside");
  const std::vector<Span> spans = SpansOf(listing);
  std::vector<std::string> parts;
  for (size_t i = 0; i < listing.lines.size(); ++i) {
    const ProgramLine& line = listing.lines[i];
    AppendLine(line, Beside(listing, spans, i), &text);
    if (parts.empty() || parts.back() != line.part) parts.push_back(line.part);
  }
  for (const std::string& part : parts) AppendSum(listing, part, &text);
  return text;
}

std::string SummaryOf(const ProgramListing& listing) {
  int switches = 0;
  double switch_seconds = 0;
  std::vector<std::string> shares, idle;
  for (const ProgramLine& line : listing.lines) {
    switches += line.switches ? 1 : 0;
    switch_seconds += line.switch_seconds;
  }
  for (const std::string& source : listing.processors) {
    const std::string processor = source.substr(0, source.find(' '));
    int count = 0;
    double seconds = 0;
    for (const ProgramLine& line : listing.lines) {
      if (line.instruction.empty() || line.processor != processor) continue;
      ++count;
      seconds += line.seconds;
    }
    if (count == 0) {
      idle.push_back(processor);
    } else {
      shares.push_back(
          absl::StrFormat("%d instructions on %s, %.3f ms", count, source, seconds * kMs));
    }
  }
  std::string text = absl::StrFormat("%s; %d switches, %.3f ms", absl::StrJoin(shares, "; "),
                                     switches, switch_seconds * kMs);
  if (!idle.empty()) {
    absl::StrAppend(&text, "; ", absl::StrJoin(idle, ", "),
                    " gets nothing: nowhere does it save what switches cost");
  }
  return text;
}

}  // namespace runnel
