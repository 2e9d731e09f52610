#include "worker/tune/tuning_store.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/process/atomic_file.h"
#include "proto/transport/link/frame.h"

namespace runnel {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".tuning";
constexpr char kTitle[] = "runnel tunings 1";
constexpr char kChecksum[] = "checksum ";
constexpr char kChoice[] = "choice";
constexpr int64_t kMaxFileBytes = 1 << 20;

std::string OneLine(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\n", " "}, {"\t", " "}});
}

std::string HeaderOf(const TuningSubject& subject) {
  return absl::StrCat(kTitle, "\nbackend ", OneLine(subject.backend), "\nfamily ",
                      OneLine(subject.family), "\ndevice ", OneLine(subject.device), "\ndriver ",
                      OneLine(subject.driver), "\nkernels ", OneLine(subject.kernels), "\n");
}

std::string ChecksumOf(absl::string_view text) {
  return absl::StrFormat("%s%08x\n", kChecksum,
                         Crc32(0, {reinterpret_cast<const std::byte*>(text.data()), text.size()}));
}

// Contents of a file.
struct Tunings {
  TuningSubject subject;
  std::vector<TuningChoice> choices;
};

std::optional<TuningChoice> ParseChoice(absl::string_view line) {
  const std::vector<std::string> words = absl::StrSplit(line, '\t');
  TuningChoice choice;
  if (words.size() != 6 || words[0] != kChoice) return std::nullopt;
  choice.shape_class = words[1];
  choice.kernel = words[2];
  const bool is_read = absl::SimpleAtod(words[3], &choice.seconds) &&
                       absl::SimpleAtod(words[4], &choice.rule_seconds) &&
                       absl::SimpleAtoi(words[5], &choice.tried);
  const bool is_sane = is_read && std::isfinite(choice.seconds) && choice.seconds >= 0 &&
                       std::isfinite(choice.rule_seconds) && choice.rule_seconds >= 0 &&
                       choice.tried >= 0;
  return is_sane ? std::optional(std::move(choice)) : std::nullopt;
}

// None: the checksum does not fit.
std::optional<Tunings> Parse(absl::string_view text) {
  const size_t end = text.rfind(kChecksum);
  if (end == absl::string_view::npos || text.substr(end) != ChecksumOf(text.substr(0, end)))
    return std::nullopt;
  const std::vector<std::string> lines =
      absl::StrSplit(text.substr(0, end), '\n', absl::SkipEmpty());
  Tunings tunings;
  const std::pair<const char*, std::string*> header[] = {{"backend ", &tunings.subject.backend},
                                                         {"family ", &tunings.subject.family},
                                                         {"device ", &tunings.subject.device},
                                                         {"driver ", &tunings.subject.driver},
                                                         {"kernels ", &tunings.subject.kernels}};
  size_t at = 1;
  if (lines.size() <= std::size(header) || lines[0] != kTitle) return std::nullopt;
  for (const auto& [name, value] : header) {
    absl::string_view line = lines[at++];
    if (!absl::ConsumePrefix(&line, name)) return std::nullopt;
    *value = std::string(line);
  }
  for (; at < lines.size(); ++at) {
    std::optional<TuningChoice> choice = ParseChoice(lines[at]);
    if (!choice.has_value()) return std::nullopt;
    tunings.choices.push_back(*std::move(choice));
  }
  return tunings;
}

void Append(std::vector<TuningChoice>& to, const std::vector<TuningChoice>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

std::string TuningStore::PathFor(const TuningSubject& subject) const {
  if (folder_.empty()) return "";
  const size_t hash = std::hash<std::string>()(HeaderOf(subject));
  return (fs::path(folder_) / absl::StrFormat("%s-%016x%s", subject.backend, hash, kSuffix))
      .string();
}

KeptTunings TuningStore::Find(const TuningSubject& subject) const {
  KeptTunings kept;
  if (folder_.empty()) return kept;
  std::error_code ignored;
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, absl::StrCat(subject.backend, "-")) &&
        absl::EndsWith(name, kSuffix)) {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<TuningChoice> relatives;
  for (const fs::path& path : paths) {
    const absl::StatusOr<std::string> text = ReadWholeFile(path.string(), kMaxFileBytes);
    const std::optional<Tunings> tunings = text.ok() ? Parse(*text) : std::nullopt;
    if (!tunings.has_value()) {
      kept.complaints.push_back(absl::StrCat("tunings ", path.string(),
                                             " are damaged and ignored: remove the file, or write "
                                             "it anew with `runnel-worker tune`"));
    } else if (HeaderOf(tunings->subject) == HeaderOf(subject)) {
      Append(kept.same, tunings->choices);
    } else if (tunings->subject.device == OneLine(subject.device)) {
      Append(kept.family, tunings->choices);
    } else if (tunings->subject.family == OneLine(subject.family)) {
      Append(relatives, tunings->choices);
    }
  }
  Append(kept.family, relatives);
  return kept;
}

absl::Status TuningStore::Keep(const TuningSubject& subject,
                               const std::vector<TuningChoice>& choices) const {
  if (folder_.empty()) return absl::OkStatus();
  std::string text = HeaderOf(subject);
  for (const TuningChoice& choice : choices) {
    absl::StrAppendFormat(&text, "%s\t%s\t%s\t%.9g\t%.9g\t%d\n", kChoice,
                          OneLine(choice.shape_class), OneLine(choice.kernel), choice.seconds,
                          choice.rule_seconds, choice.tried);
  }
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return FileError("make", folder_, error.value());
  return WriteFileAtomically(PathFor(subject), {text, ChecksumOf(text)});
}

}  // namespace runnel
