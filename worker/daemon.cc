#include "worker/daemon.h"

#include <utility>

#include "proto/base/status_macros.h"

namespace runnel {

Daemon::Daemon(WorkerOptions options, Parts parts)
    : loop_(parts.clock),
      arithmetic_({options.backend,
                   {options.threads, options.device_memory_bytes, options.backend_options},
                   options.backends,
                   options.state_folder,
                   parts.logger},
                  parts.clock),
      energy_(EnergyCounter::Find("")),
      core_(std::move(options),
            {&loop_, parts.transport, parts.control, parts.logger, parts.lives, &arithmetic_,
             nullptr, energy_.get(), std::move(parts.fill_device)}) {}

absl::Status Daemon::Run() {
  RUNNEL_RETURN_IF_ERROR(core_.Start([this](const absl::Status& status) {
    result_ = status;
    loop_.Stop();
  }));
  loop_.Run();
  return result_;
}

}  // namespace runnel
