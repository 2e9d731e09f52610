#pragma once

// Whether a link whose connection has ended is dialled again, and when: told apart are a peer that
// is gone, one that is there and not ready yet, and bytes that were damaged on the way. A state
// machine: no thread, no clock; one owner calls it.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace runnel {

struct RedialLimits {
  // The peer is lost after this time without an answer.
  int64_t lost_ns = int64_t{20} * 1000 * 1000 * 1000;
  // The peer is there and has refused every connection for this long. It may be busy with a plan
  // that it gets later than we did; whether it lives, its control stream tells.
  int64_t refused_ns = int64_t{120} * 1000 * 1000 * 1000;
  // Connections in a row that damaged bytes ended, without a frame delivered in between.
  int damaged_connections = 5;
};

class RedialPolicy {
 public:
  // dials: this end dials. The other end waits for its peer and gives up for bad bytes only.
  RedialPolicy(const RedialLimits& limits, bool dials) : limits_(limits), dials_(dials) {}

  // The first connection is dialled.
  void Begin(int64_t now_ns) { lost_since_ns_ = now_ns; }
  // Anything but a refusal came in on the current connection.
  void Heard();
  // The peer said that it does not want the current connection, and why.
  void Refused(std::string reason) { refusal_ = std::move(reason); }
  // The current connection ended as ConnectionObserver::OnClosed says; `delivered` frames have been
  // delivered over all connections. OK: go on, by dialling again after NextDelayNs if this end
  // dials. Not OK, always with a text: the link is given up, as for bad bytes and where an end has
  // no memory for a frame.
  absl::Status Ended(int64_t now_ns, const absl::Status& status, int64_t delivered);
  // Longer each time until something is heard.
  int64_t NextDelayNs();

 private:
  absl::Status CheckDamage(const absl::Status& status, int64_t delivered);

  RedialLimits limits_;
  bool dials_;
  bool heard_ = false;    // on the current connection
  std::string refusal_;   // on the current connection
  int64_t delay_ns_ = 0;  // before the last dial
  int64_t lost_since_ns_ = 0;
  std::optional<int64_t> refused_since_ns_;
  int damaged_ = 0;  // connections in a row
  int64_t delivered_at_damage_ = -1;
};

}  // namespace runnel
