#pragma once

// The limits of the owner, on the worker's command line.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/base/figures/telemetry.h"
#include "proto/crypto/identity.h"
#include "worker/limits/limit_rows.h"
#include "worker/service.h"

namespace CLI {
class App;
}

namespace runnel {

// One flag a row of LimitRows. Filled in when the command line is parsed.
std::shared_ptr<const LimitSettings> AddLimitFlags(CLI::App& app);

// Sets held_by, and the limits that central hears of; neither where the owner has set no limit.
// FailedPrecondition: a limit that cannot be kept on this device.
absl::Status SetLimits(const LimitSettings& settings, ServiceOptions& service);

// Daemon::Parts' fill_device. identity: null: the worker has no certificate.
std::function<void(Telemetry&)> DeviceFiller(std::shared_ptr<const IdentityHolder> identity);

}  // namespace runnel
