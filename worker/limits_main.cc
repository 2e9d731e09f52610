#include "worker/limits_main.h"

#include <cstdlib>
#include <ctime>
#include <utility>

#include "CLI/CLI.hpp"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "worker/limits/device_figures.h"
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

absl::Status SetLimits(const LimitSettings& settings, ServiceOptions& service) {
  const std::string& state_folder = service.daemon.state_folder;
  DeviceLimits::Parts parts;
  parts.read_device = [root = SystemRoot()] { return ReadDevice(root); };
  parts.take_data_bytes = [bytes = std::make_shared<NetworkBytes>()] { return bytes->Take(); };
  parts.now_s = [] { return std::time(nullptr); };
  if (!state_folder.empty()) parts.data_file = state_folder + "/data_today";
  const auto limits = std::make_shared<DeviceLimits>(settings, std::move(parts));
  if (limits->empty()) return absl::OkStatus();
  RUNNEL_RETURN_IF_ERROR(limits->Check());
  service.held_by = [limits] { return limits->Reason(); };
  service.daemon.limits = limits->Text();
  return absl::OkStatus();
}

std::function<void(Telemetry&)> DeviceFiller(std::shared_ptr<const IdentityHolder> identity) {
  DeviceFigures::Parts parts;
  parts.read_device = [root = SystemRoot()] { return ReadDevice(root); };
  if (identity != nullptr)
    parts.certificate_until_s = [identity] { return identity->info().not_after_s; };
  parts.now_ns = [clock = MonotonicClock()] { return clock.NowNanos(); };
  const auto figures = std::make_shared<DeviceFigures>(std::move(parts));
  return [figures](Telemetry& telemetry) { figures->Fill(telemetry); };
}

}  // namespace runnel
