#pragma once

// What a link carries, measured from the frames that cross it: bytes over the time in which they
// came in, each direction by its receiver. A round trip of a small message, as FTPipeHD measures,
// tells latency instead.

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/transport/frame.h"

namespace runnel {

// Estimates one direction from its last transfers. Not thread-safe.
class BandwidthMeter {
 public:
  // A transfer with fewer bytes after its first piece tells mostly about latency: left out.
  static constexpr int64_t kLeastBytes = 8 * 1024;
  // Transfers that count; what happened before is forgotten.
  static constexpr size_t kWindow = 8;

  void Add(const FrameArrival& arrival);
  // The median rate of the window's transfers, each weighted by its bytes: a receiver that was held
  // up once does not show, a link that has changed does after half a window. 0: nothing measured.
  double bytes_per_second() const;
  int64_t transfers() const { return transfers_; }

 private:
  std::deque<FrameArrival> window_;
  int64_t transfers_ = 0;
};

// When to send a probe, and how large, on a link that says nothing about itself: nothing measurable
// was sent for a while and nothing waits. The receiver reports what it measured, and the next probe
// is larger until it lasts long enough. A state machine: no clock.
class BandwidthProbe {
 public:
  static constexpr int64_t kFirstBytes = 16 * 1024;
  static constexpr int64_t kMaxBytes = 1024 * 1024;
  // A probe that took less is repeated, four times as large.
  static constexpr int64_t kLongEnoughNs = 20'000'000;
  // Nothing measurable was sent for this long before the first probe, or before a further one.
  static constexpr int64_t kFirstIdleNs = 2'000'000'000;
  static constexpr int64_t kIdleNs = 10'000'000'000;
  // A report that has not come by then is lost with its connection.
  static constexpr int64_t kReportDeadlineNs = 60'000'000'000;

  // The link stands since `now_ns`.
  void Connected(int64_t now_ns);
  // A frame that the peer can measure the link by was sent.
  void Sent(int64_t now_ns);
  // The peer measured a probe of ours.
  void Reported(int64_t now_ns, const FrameArrival& arrival);
  // Payload bytes of the probe to send now, if any; it counts as sent. queued_bytes: what waits.
  std::optional<int64_t> Due(int64_t now_ns, int64_t queued_bytes);

 private:
  int64_t quiet_since_ns_ = 0;
  int64_t idle_ns_ = kFirstIdleNs;
  int64_t next_bytes_ = kFirstBytes;
  int64_t sent_ns_ = 0;
  bool waiting_ = false;  // for a report
};

// The frames of a probe: bytes that mean nothing, and the receiver's report.
Frame MakeProbe(int64_t payload_bytes);
Frame MakeProbeReport(const FrameArrival& arrival);
// InvalidArgument: not the text "BYTES NANOSECONDS", both above zero.
absl::StatusOr<FrameArrival> ParseProbeReport(absl::Span<const std::byte> payload);

}  // namespace runnel
