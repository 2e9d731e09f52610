#pragma once

// The limits of the owner, on the worker's command line.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/limits/limit_rows.h"

namespace CLI {
class App;
}

namespace runnel {

// One flag a row of LimitRows. Filled in when the command line is parsed.
std::shared_ptr<const LimitSettings> AddLimitFlags(CLI::App& app);

// ServiceOptions::held_by; null: the owner has set no limit. FailedPrecondition: a limit that cannot be
// kept on this device.
absl::StatusOr<std::function<std::string()>> HeldBy(const LimitSettings& settings,
                                                    const std::string& state_folder);

}  // namespace runnel
