#include "worker/measure/backend_verdicts.h"

#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "proto/process/atomic_file.h"
#include "worker/measure/backend_check.h"

namespace runnel {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".verdict";
constexpr char kRight[] = "right\n";
constexpr char kWrong[] = "wrong: ";
constexpr int64_t kMaxFileBytes = 64 << 10;

// Size and time of the last change: another build has another stamp.
std::string StampOf(const fs::path& path) {
  struct stat file = {};
  if (stat(path.c_str(), &file) != 0) return "";
  return absl::StrCat(path.filename().string(), " ", int64_t{file.st_size}, " ",
                      int64_t{file.st_mtim.tv_sec}, ".", int64_t{file.st_mtim.tv_nsec}, "\n");
}

// Identity of this program and of its files: shared objects, the DSP's program.
std::string Build() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path folder = program.parent_path();
  std::string build = absl::StrCat(StampOf(program), StampOf(folder / "runnel-dsp"));
  for (const auto& entry : fs::directory_iterator(folder.parent_path() / "lib/runnel", ignored))
    absl::StrAppend(&build, StampOf(entry.path()));
  return build;
}

// All facts that a verdict depends on.
std::string SubjectOf(const Backend& backend) {
  return absl::StrCat("runnel backend verdict 1\nbackend ", backend.name(), "\nclass ",
                      backend.numerics_class(), "\ndevice ", backend.description(), "\n", Build(),
                      "verdict ");
}

fs::path PathFor(const std::string& folder, const Backend& backend, const std::string& subject) {
  return fs::path(folder) / absl::StrFormat("%s-%016x%s", std::string(backend.name()),
                                            std::hash<std::string>()(subject), kSuffix);
}

absl::Status WrongStatus(const Backend& backend, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("backend ", backend.name(), ": ", backend.description(), " ", why,
                   "; take --backend cpu, and see `runnel-worker --check`"));
}

// The kept verdict; none: there is none.
std::optional<absl::Status> FindVerdict(const std::string& folder, const Backend& backend) {
  const std::string subject = SubjectOf(backend);
  const absl::StatusOr<std::string> text =
      ReadWholeFile(PathFor(folder, backend, subject).string(), kMaxFileBytes);
  if (!text.ok()) return std::nullopt;
  absl::string_view verdict = *text;
  if (!absl::ConsumePrefix(&verdict, subject)) return std::nullopt;
  if (verdict == kRight) return absl::OkStatus();
  if (!absl::ConsumePrefix(&verdict, kWrong) || !absl::ConsumeSuffix(&verdict, "\n"))
    return std::nullopt;
  return WrongStatus(backend, verdict);
}

// A verdict that cannot be kept is found again the next time.
void KeepVerdict(const std::string& folder, const Backend& backend, const absl::Status& checked) {
  if (folder.empty() || !(checked.ok() || absl::IsDataLoss(checked))) return;
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  const std::string subject = SubjectOf(backend);
  const std::string verdict =
      checked.ok() ? std::string(kRight) : absl::StrCat(kWrong, checked.message(), "\n");
  WriteFileAtomically(PathFor(folder, backend, subject).string(), {subject, verdict}).IgnoreError();
}

}  // namespace

absl::Status BackendVerdicts::CheckAnew(Backend& backend) const {
  const absl::Status checked = CheckBackend(backend);
  KeepVerdict(folder_, backend, checked);
  return checked;
}

absl::Status BackendVerdicts::Admit(Backend& backend) const {
  const absl::Status examined = Examine(backend);
  return absl::IsUnimplemented(examined) ? absl::OkStatus() : examined;
}

absl::Status BackendVerdicts::Examine(Backend& backend) const {
  if (!folder_.empty()) {
    if (const auto verdict = FindVerdict(folder_, backend)) return *verdict;
  }
  const absl::Status checked = CheckAnew(backend);
  return absl::IsDataLoss(checked) ? WrongStatus(backend, checked.message()) : checked;
}

bool BackendVerdicts::HasRefused(absl::string_view backend) const {
  std::error_code ignored;
  if (folder_.empty()) return false;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!absl::StartsWith(name, absl::StrCat(backend, "-")) || !absl::EndsWith(name, kSuffix))
      continue;
    const absl::StatusOr<std::string> text = ReadWholeFile(entry.path().string(), kMaxFileBytes);
    if (text.ok() && absl::StrContains(*text, absl::StrCat("\nverdict ", kWrong))) return true;
  }
  return false;
}

}  // namespace runnel
