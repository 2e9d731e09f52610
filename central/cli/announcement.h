#pragma once

// Says on the network where central's join door is, by mDNS, so that `runnel-worker --join TOKEN` finds it.

#include <memory>
#include <string>

#include "central/run/workers/worker_process.h"
#include "proto/transport/link/address.h"

namespace runnel {

// avahi-publish-service, for as long as this lives. It holds no secret: who knows where the door is still
// needs a token.
class Announcement {
 public:
  // Null where nobody else could dial (loopback) or Avahi's program is not in PATH. From the main thread
  // (WorkerProcess).
  static std::unique_ptr<Announcement> Begin(const Address& door);

 private:
  explicit Announcement(std::unique_ptr<WorkerProcess> process) : process_(std::move(process)) {}

  const std::unique_ptr<WorkerProcess> process_;
};

}  // namespace runnel
