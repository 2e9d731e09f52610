#pragma once

// The display of one run after the other and, where they are asked for, their pages: on loopback
// (--metrics-port) and over TLS (--http-listen).

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "central/display/admin_server.h"
#include "central/display/run_display.h"
#include "central/settings/run_settings.h"
#include "proto/base/clock.h"

namespace runnel {

// Of --http-listen.
struct PageNetwork {
  int port = 0;  // 0: any free one
  AdminNetwork network;
};

class DisplayMaker {
 public:
  // clock: borrowed, outlives this.
  explicit DisplayMaker(const Clock* clock) : clock_(clock) {}

  // The display of a run, which ends that of the one before. Errors as AdminServer's.
  absl::StatusOr<RunDisplay*> Make(const RunSettings& settings);

  // Where progress goes: a descriptor that stays open, standard output without.
  void WriteTo(int descriptor) { descriptor_ = descriptor; }
  // Of the pages of runs from now on.
  void TakeOrders(MemberCalls orders) { orders_ = std::move(orders); }
  void ServeOnNetwork(PageNetwork network) { network_ = std::move(network); }

  // As JSON. Unavailable: there was no run. Any thread.
  absl::StatusOr<std::string> State();

  // Serves the page of a run that is over for as long as somebody reads it.
  void Linger();

 private:
  absl::Status ServePages(const RunSettings& settings, const std::shared_ptr<RunDisplay>& display);
  bool has_reader() const;

  const Clock* clock_;
  int descriptor_ = 1;
  MemberCalls orders_;
  std::optional<PageNetwork> network_;
  int64_t linger_s_ = 0;
  std::mutex mutex_;
  std::shared_ptr<RunDisplay> display_;  // guarded by mutex_ where another thread may read it
  std::unique_ptr<AdminServer> local_;
  std::unique_ptr<AdminServer> remote_;
};

// The read token of a home, made where there is none yet: HOME/page_token, which only its owner reads.
// Errors as proto/process/atomic_file.h; InvalidArgument: the file holds no token.
absl::StatusOr<std::string> PageToken(const std::string& home);

}  // namespace runnel
