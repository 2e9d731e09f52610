#include "worker/measure/measurement_store.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/control.pb.h"
#include "proto/process/atomic_file.h"
#include "proto/transport/control/control_convert.h"

namespace runnel {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".measurement";
// A model of 1024 layers takes about 100 KB.
constexpr int64_t kMaxFileBytes = int64_t{4} << 20;
// Largest number of files of all devices, builds and requests; beyond that the oldest go.
constexpr size_t kMostFiles = 256;

// Whether an answer may be an old one is no part of the question, nor is the plan that holds.
proto::ProfileRequest QuestionOf(ProfileRequest request) {
  request.accepts_kept = false;
  request.generation = Generation();
  return ToProto(CentralMessage(std::move(request))).profile_request();
}

// Path that the same program finds again; no other program reads it.
std::string PathFor(const std::string& folder, const std::string& device,
                    const proto::ProfileRequest& question) {
  const size_t hash =
      std::hash<std::string>()(absl::StrCat(device, "\n", question.SerializeAsString()));
  return (fs::path(folder) / absl::StrFormat("%016x%s", hash, kSuffix)).string();
}

void RemoveOldest(const std::string& folder) {
  std::error_code ignored;
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == kSuffix)
      files.emplace_back(entry.last_write_time(ignored), entry.path());
  }
  if (files.size() <= kMostFiles) return;
  std::sort(files.begin(), files.end());
  files.resize(files.size() - kMostFiles);
  for (const auto& file : files) fs::remove(file.second, ignored);
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

MeasurementStore::MeasurementStore(std::string folder, std::string device)
    : folder_(std::move(folder)), device_(std::move(device)) {}

std::optional<ProfileReport> MeasurementStore::Find(const ProfileRequest& request) const {
  if (folder_.empty()) return std::nullopt;
  const proto::ProfileRequest question = QuestionOf(request);
  const absl::StatusOr<std::string> bytes =
      ReadWholeFile(PathFor(folder_, device_, question), kMaxFileBytes);
  proto::KeptMeasurement kept;
  if (!bytes.ok() || !kept.ParseFromString(*bytes)) return std::nullopt;
  const bool is_same = kept.device() == device_ &&
                       kept.request().SerializeAsString() == question.SerializeAsString();
  if (!is_same) return std::nullopt;
  proto::FromWorker wire;
  *wire.mutable_profile_report() = std::move(*kept.mutable_report());
  absl::StatusOr<WorkerMessage> message = FromProto(std::move(wire));
  if (!message.ok()) return std::nullopt;
  auto report = std::get<ProfileReport>(*std::move(message));
  report.kept = true;
  return report;
}

absl::Status MeasurementStore::Keep(const ProfileRequest& request,
                                    const ProfileReport& report) const {
  if (folder_.empty()) return absl::OkStatus();
  proto::KeptMeasurement kept;
  kept.set_device(device_);
  *kept.mutable_request() = QuestionOf(request);
  *kept.mutable_report() = ToProto(WorkerMessage(report)).profile_report();
  kept.mutable_report()->clear_generation();
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return FileError("make", folder_, error.value());
  RemoveOldest(folder_);
  return WriteFileAtomically(PathFor(folder_, device_, kept.request()), {kept.SerializeAsString()});
}

std::string DefaultStateFolder() {
  if (const char* given = std::getenv("RUNNEL_STATE_DIR")) return given;
  if (const std::string state = Variable("XDG_STATE_HOME"); !state.empty())
    return absl::StrCat(state, "/runnel");
  const std::string home = Variable("HOME");
  return home.empty() ? "" : absl::StrCat(home, "/.local/state/runnel");
}

}  // namespace runnel
