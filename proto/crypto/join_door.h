#pragma once

// The place where a device without a certificate gets one: a TLS listener of its own, beside the
// control port, which accepts certificates only. The device knows central by the hash in its token,
// central knows the device by the token's secret.
// || A stranger can do little here: TLS 1.3 with one library, one short request (join_exchange.h),
// at most kMostConnections at a time and kPatienceMs each. Of more connections the oldest is
// closed.

#include <poll.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/refusal_log.h"
#include "proto/crypto/authority.h"

namespace runnel {

class JoinDoor {
 public:
  static constexpr size_t kMostConnections = 32;
  static constexpr int64_t kPatienceMs = 5'000;

  struct Options {
    const Authority* authority = nullptr;  // outlives the door, as does the log
    RefusalLog* refusals = nullptr;
    std::string host;      // an IP address of this machine
    int port = 0;          // 0: any free one
    int control_port = 0;  // the port that devices are told
    int64_t patience_ms = kPatienceMs;
  };

  // AlreadyExists: the port is in use. Others: it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<JoinDoor>> Open(const Options& options);
  // Closes all open connections.
  ~JoinDoor();

  int port() const { return port_; }

 private:
  class Visitor;
  struct Listening;

  JoinDoor(const Options& options, std::unique_ptr<Listening> listening);
  void Serve();
  void Accept();
  std::string Answer(const std::string& text);

  const Options options_;
  const std::unique_ptr<Listening> listening_;
  int port_ = 0;
  std::vector<std::unique_ptr<Visitor>> visitors_;  // oldest first; of the thread
  int64_t accepts_at_ms_ = 0;                       // not before: there was no room
  std::thread thread_;                              // last
};

}  // namespace runnel
