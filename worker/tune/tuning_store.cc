#include "worker/tune/tuning_store.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"
#include "proto/process/atomic_file.h"
#include "proto/transport/link/frame.h"

namespace runnel {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".tuning";
constexpr char kFormat[] = "runnel-tunings";
constexpr int64_t kVersion = 2;
constexpr int64_t kMaxFileBytes = 1 << 20;

// A field of the head: the subject that the choices are about.
struct Field {
  const char* key;
  std::string TuningSubject::*text;
};
constexpr Field kSubject[] = {{"backend", &TuningSubject::backend},
                              {"family", &TuningSubject::family},
                              {"device", &TuningSubject::device},
                              {"driver", &TuningSubject::driver},
                              {"kernels", &TuningSubject::kernels}};

// Contents of a file.
struct Tunings {
  TuningSubject subject;
  std::vector<TuningChoice> choices;
};

Json HeadOf(const TuningSubject& subject) {
  Json head{{"format", kFormat}, {"version", kVersion}};
  for (const Field& field : kSubject) head[field.key] = subject.*field.text;
  return head;
}

std::string ToText(const Tunings& tunings) {
  std::vector<Json> rows;
  for (const TuningChoice& choice : tunings.choices) {
    rows.push_back({{"shape_class", choice.shape_class},
                    {"kernel", choice.kernel},
                    {"seconds", Rounded(choice.seconds, 9)},
                    {"rule_seconds", Rounded(choice.rule_seconds, 9)},
                    {"tried", choice.tried}});
  }
  Json head = HeadOf(tunings.subject);
  const std::string checked = DumpRows(head, "choices", rows);
  head["checksum"] = absl::StrFormat(
      "%08x", Crc32(0, {reinterpret_cast<const std::byte*>(checked.data()), checked.size()}));
  return DumpRows(head, "choices", rows);
}

absl::StatusOr<TuningChoice> ReadChoice(const Json& json) {
  TuningChoice choice;
  JsonObject row(json, "choice");
  row.Read("shape_class", choice.shape_class)
      .Read("kernel", choice.kernel)
      .Read("seconds", choice.seconds)
      .Read("rule_seconds", choice.rule_seconds)
      .Read("tried", choice.tried);
  RUNNEL_RETURN_IF_ERROR(row.Finish());
  const bool is_sane = std::isfinite(choice.seconds) && choice.seconds >= 0 &&
                       std::isfinite(choice.rule_seconds) && choice.rule_seconds >= 0 &&
                       choice.tried >= 0;
  if (!is_sane) return absl::InvalidArgumentError("choice: cannot be");
  return choice;
}

// InvalidArgument: it is not what ToText wrote.
absl::StatusOr<Tunings> Parse(absl::string_view text) {
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  Tunings tunings;
  std::string checksum;
  JsonObject object(json, "tunings");
  object.Format(kFormat, kVersion);
  for (const Field& field : kSubject) object.Read(field.key, tunings.subject.*field.text);
  object.Read("checksum", checksum);
  for (const Json& row : object.Array("choices")) {
    RUNNEL_ASSIGN_OR_RETURN(tunings.choices.emplace_back(), ReadChoice(row));
  }
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  if (ToText(tunings) != text) return absl::InvalidArgumentError("its bytes have changed");
  return tunings;
}

void Append(std::vector<TuningChoice>& to, const std::vector<TuningChoice>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

std::string TuningStore::PathFor(const TuningSubject& subject) const {
  if (folder_.empty()) return "";
  const size_t hash = std::hash<std::string>()(DumpJson(HeadOf(subject)));
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
    const absl::StatusOr<Tunings> tunings = text.ok() ? Parse(*text) : text.status();
    if (!tunings.ok()) {
      kept.complaints.push_back(
          absl::StrCat("tunings ", path.string(), " are ignored (", tunings.status().message(),
                       "): remove the file, or write it anew with `runnel-worker tune`"));
    } else if (tunings->subject == subject) {
      Append(kept.same, tunings->choices);
    } else if (tunings->subject.device == subject.device) {
      Append(kept.family, tunings->choices);
    } else if (tunings->subject.family == subject.family) {
      Append(relatives, tunings->choices);
    }
  }
  Append(kept.family, relatives);
  return kept;
}

absl::Status TuningStore::Keep(const TuningSubject& subject,
                               const std::vector<TuningChoice>& choices) const {
  if (folder_.empty()) return absl::OkStatus();
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return FileError("make", folder_, error.value());
  return WriteFileAtomically(PathFor(subject), {ToText({subject, choices})});
}

}  // namespace runnel
