#pragma once

// What a link carries, measured from the frames that cross it, each direction by its receiver: some
// frames are sent in pieces, and the receiver notes when it has read each. A round trip of a small
// message, as FTPipeHD measures, tells latency instead.
//
// A piece is read after it has arrived, by any delay: a receiver that a CPU quota stops for 7 ms
// finds at once what came in meanwhile, and a sender that is stopped leaves a gap. Such times say
// nothing, and no single frame tells them from the link's own. But of all pairs of pieces those
// that were read when they came agree on one rate, also across a burst (its end has caught up with
// the link), while the others scatter: the rate is where the pairs are densest.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/transport/link/frame.h"

namespace runnel {

// Estimates one direction from its last transfers. Not thread-safe.
class BandwidthMeter {
 public:
  // A transfer with fewer bytes after its first piece tells mostly about latency: left out.
  static constexpr int64_t kLeastBytes = 4 * 1024;
  // Transfers that count, of those under kSmallBytes and of the others, which many small ones must
  // not push out; what happened before is forgotten.
  static constexpr size_t kWindow = 24;
  static constexpr int64_t kSmallBytes = 56 * 1024;
  // A first piece is not read later. After kFaster transfers in a row that came in faster than the
  // old rate allows even then, it is forgotten.
  static constexpr double kLateNs = 15e6;
  static constexpr int kFaster = 2;
  // The youngest, of at least so many bytes, can show that the link has changed; older ones then no
  // longer count.
  static constexpr size_t kLeastWindow = 4;
  static constexpr int64_t kLeastWindowBytes = 128 * 1024;
  // Once the window is full, every so many transfers are asked: it takes half a millisecond.
  static constexpr int64_t kRest = 2;
  // Pieces read one after the other within less were waiting for the reader.
  static constexpr int64_t kResolutionNs = 500'000;

  void Add(const FrameArrival& arrival);
  // The rate on which the pairs of pieces agree, of as many transfers, from the youngest back, as
  // agree with the youngest ones; while they do not, what they last agreed on. Where none ever have
  // (a link that is faster than its reader, or all frames small and read late): all bytes over all
  // time; late reading of first and of last pieces then cancels out in the mean. 0: nothing
  // measured.
  double bytes_per_second() const { return bytes_per_ns_ * 1e9; }
  int64_t transfers() const { return transfers_; }

 private:
  void Trim();

  std::deque<FrameArrival> window_;
  double bytes_per_ns_ = 0;
  bool agreed_ = false;  // pairs have, at the link's present rate
  int faster_ = 0;       // of the youngest
  int64_t transfers_ = 0;
};

// Notes how the pieces of a frame come in. Not thread-safe.
class ArrivalRecorder {
 public:
  // Of a longer frame every second point goes, as often as it takes.
  static constexpr size_t kMostPoints = 16;

  // The first piece of a frame has been read.
  void Begin(int64_t now_ns);
  // A further one of `bytes` has.
  void Add(int64_t now_ns, int64_t bytes);
  FrameArrival Take();

 private:
  FrameArrival arrival_;
  int64_t begin_ns_ = 0;
  size_t pieces_ = 0;
  size_t stride_ = 1;  // of the pieces, those that become points
};

// Which frames a sender sends in pieces. Each piece wakes both ends, which takes the processor from
// the computation where frames follow each other fast: then some frames tell enough. A state
// machine: no clock.
class MeasuredFrames {
 public:
  static constexpr int64_t kLeastPayloadBytes = 2 * BandwidthMeter::kLeastBytes;
  // About a packet: a piece has come when the packet with its end has.
  static constexpr int64_t kLeastPieceBytes = 1400;
  static constexpr int64_t kMostPieces = 12;
  // The first ones, and then one in so long.
  static constexpr int kFirst = 8;
  static constexpr int64_t kEveryNs = 200'000'000;

  // Payload bytes in a piece of the frame that is sent now; 0: it goes whole.
  int64_t PieceBytes(const FrameHeader& header, int64_t now_ns);

 private:
  int64_t measured_ = 0;
  int64_t last_ns_ = 0;
};

// When to send a probe, and how large: on a link that is idle or has small frames only, and on a
// fast one in use too, whose large frames are over before the receiver has looked at them twice.
// Never while something waits. The receiver reports what it measured, and the next probe is larger
// until it lasts long enough. A state machine: no clock.
class BandwidthProbe {
 public:
  static constexpr int64_t kFirstBytes = 16 * 1024;
  static constexpr int64_t kMaxBytes = 256 * 1024;
  // A probe that took less is repeated, four times as large.
  static constexpr int64_t kLongEnoughNs = 20'000'000;
  // Nothing measurable was sent for this long before the first probe, or before a further one.
  static constexpr int64_t kFirstIdleNs = 2'000'000'000;
  static constexpr int64_t kIdleNs = 10'000'000'000;
  // The pause lasts at least so many times as long as the probe did: under 1 % of the link's time.
  static constexpr int64_t kPauseFactor = 100;
  // A report that has not come by then is lost with its connection.
  static constexpr int64_t kReportDeadlineNs = 60'000'000'000;

  // The link stands since `now_ns`.
  void Connected(int64_t now_ns);
  // A frame at least as large as the first probe was sent.
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
  bool waiting_ = false;            // for a report
  bool large_frames_tell_ = false;  // the first probe lasted long enough
};

// The frames of a probe: bytes that mean nothing, and the receiver's report.
Frame MakeProbe(int64_t payload_bytes);
Frame MakeProbeReport(const FrameArrival& arrival);
// InvalidArgument: not the text "BYTES NANOSECONDS", both above zero.
absl::StatusOr<FrameArrival> ParseProbeReport(absl::Span<const std::byte> payload);

}  // namespace runnel
