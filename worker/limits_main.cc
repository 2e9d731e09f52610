#include "worker/limits_main.h"

#include <cstdlib>
#include <ctime>
#include <utility>

#include "CLI/CLI.hpp"
#include "proto/base/status_macros.h"
#include "worker/limits/device_limits.h"
#include "worker/limits/network_bytes.h"

namespace runnel {
namespace {

// RUNNEL_SYSTEM_ROOT: a folder with a sys/ below it, in tests.
std::string SystemRoot() {
  const char* root = std::getenv("RUNNEL_SYSTEM_ROOT");
  return root == nullptr ? "" : root;
}

}  // namespace

std::shared_ptr<const LimitSettings> AddLimitFlags(CLI::App& app) {
  auto limits = std::make_shared<LimitSettings>();
  for (const LimitRow& row : LimitRows()) {
    app.add_option_function<std::string>(
           row.flag,
           [&row, limits](const std::string& text) {
             const absl::Status status = row.parse(text, *limits);
             if (!status.ok()) throw CLI::ValidationError(row.flag, std::string(status.message()));
           },
           row.help)
        ->type_name(row.value);
  }
  return limits;
}

absl::StatusOr<std::function<std::string()>> HeldBy(const LimitSettings& settings,
                                                    const std::string& state_folder) {
  DeviceLimits::Parts parts;
  parts.read_device = [root = SystemRoot()] { return ReadDevice(root); };
  parts.take_data_bytes = [bytes = std::make_shared<NetworkBytes>()] { return bytes->Take(); };
  parts.now_s = [] { return std::time(nullptr); };
  if (!state_folder.empty()) parts.data_file = state_folder + "/data_today";
  const auto limits = std::make_shared<DeviceLimits>(settings, std::move(parts));
  if (limits->empty()) return nullptr;
  RUNNEL_RETURN_IF_ERROR(limits->Check());
  return [limits] { return limits->Reason(); };
}

}  // namespace runnel
