#pragma once

// Bandwidth of a link, measured by the receiver of each direction from the training's own frames:
// some frames are sent in pieces, and the receiver records when it has read each piece. (FTPipeHD
// measures the round trip of a small message, which gives the latency instead.)
//
// The time of reading is not the time of arrival. A receiver that a CPU quota stops for 7 ms reads
// all pieces of that time at once; a sender that is stopped leaves a gap:
//
//   arrives  1   2   3   4   5   6          rate between two pieces =
//   read     1   2 . . . . 345   6            bytes between their ends / time between their reads
//
// Pieces 1, 2, 5 and 6 were read on arrival: every pair of them gives the link's rate, also across
// the burst. Pairs with 3 or 4 give other rates, which scatter. No single frame tells the two kinds
// apart, but over many frames most pairs agree: the estimate is the rate where pairs are densest.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/transport/link/frame.h"

namespace runnel {

// Estimates the bandwidth of one direction from its last transfers. Not thread-safe.
class BandwidthMeter {
 public:
  // Transfers with fewer bytes after their first piece are ignored: they measure latency.
  static constexpr int64_t kLeastBytes = 4 * 1024;
  // The estimate uses the last kWindow transfers under kSmallBytes and the last kWindow larger
  // ones: two windows, so that many small transfers do not push out the few large ones.
  static constexpr size_t kWindow = 24;
  static constexpr int64_t kSmallBytes = 56 * 1024;
  // A link that became faster: after kFasterTransfers transfers in a row that took less than half
  // of (time at the old rate), even if their first piece was read kLateNs late, older ones are
  // dropped.
  static constexpr double kLateNs = 15e6;
  static constexpr int kFasterTransfers = 2;
  // A link that changed: the newest transfers, at least this many with this many bytes, outvote all
  // older ones.
  static constexpr size_t kLeastWindow = 4;
  static constexpr int64_t kLeastWindowBytes = 128 * 1024;
  // Once the window is full, re-estimate at every second transfer only: an estimate costs 0.5 ms.
  static constexpr int64_t kEstimateEvery = 2;
  // A token bucket lets the first bytes after a pause pass at once: what came behind so many bytes
  // of a transfer came at the link's own rate. Where the estimate is more than kBurstFactor times
  // that rate, the estimate is of frames that fit into the bucket: that rate is taken instead.
  static constexpr int64_t kBurstBytes = 32 * 1024;
  static constexpr double kBurstFactor = 1.5;
  static constexpr size_t kLongTransfers = 5;  // the last so many count, the fastest of them
  // Two reads within less time belong to one burst: the pieces had been waiting for the reader.
  static constexpr int64_t kResolutionNs = 500'000;

  void Add(const FrameArrival& arrival);
  // Bytes a second. The rate on which pairs of pieces agree, over the longest run of newest
  // transfers that agrees with the newest ones; the last agreement while there is none. Before the
  // first agreement (a link that is faster than its reader, or only small frames that were read
  // late): (bytes of all transfers) / (their time), where late reads of first and last pieces
  // cancel out. Not more than transfers show that are too long for a token bucket (kBurstBytes).
  // 0: nothing was measured.
  double bytes_per_second() const;
  int64_t transfers() const { return transfers_; }

 private:
  void Trim();
  void AddLongTransfer(const FrameArrival& arrival);

  std::deque<FrameArrival> window_;
  double bytes_per_ns_ = 0;
  bool agreed_ = false;  // bytes_per_ns_ is an agreement, since the link last became faster
  int faster_ = 0;       // newest transfers in a row that were faster than the old rate allows
  int64_t transfers_ = 0;
  std::deque<double> behind_burst_;  // bytes a nanosecond, of the last long transfers
};

// Records when the pieces of one frame were read. Not thread-safe.
class ArrivalRecorder {
 public:
  // When there are more points, every second one is dropped, again and again.
  static constexpr size_t kMostPoints = 16;

  // The first piece of a frame has been read.
  void Begin(int64_t now_ns);
  // A further piece of `bytes` has been read.
  void Add(int64_t now_ns, int64_t bytes);
  // The record of the frame; the recorder is empty after that.
  FrameArrival Finish();

 private:
  FrameArrival arrival_;
  int64_t begin_ns_ = 0;
  size_t pieces_ = 0;
  size_t stride_ = 1;  // every stride_-th piece becomes a point
};

// Decides which frames a sender sends in pieces. Each piece wakes both ends and takes processor
// time from the training, so with many frames only some go in pieces. A state machine: no clock.
class MeasuredFrames {
 public:
  static constexpr int64_t kLeastPayloadBytes = 2 * BandwidthMeter::kLeastBytes;
  // About one packet: a piece has arrived when the packet with its end has.
  static constexpr int64_t kLeastPieceBytes = 1400;
  static constexpr int64_t kMostPieces = 12;
  // The first kFirst frames go in pieces, then one frame in kEveryNs.
  static constexpr int kFirst = 8;
  static constexpr int64_t kEveryNs = 200'000'000;

  // Payload bytes of a piece of the frame that is sent now; 0: the frame goes whole.
  int64_t PieceBytes(const FrameHeader& header, int64_t now_ns);

 private:
  int64_t measured_ = 0;
  int64_t last_ns_ = 0;
};

// Decides when to send a probe frame, and how large. Probes are for links whose own frames cannot
// be measured: idle links, links with small frames, and links so fast that the receiver reads a
// large frame at once. No probe is sent while frames wait. The receiver reports its measurement,
// and the next probe is four times as large until a probe lasts long enough. A state machine: no
// clock.
class BandwidthProbe {
 public:
  static constexpr int64_t kFirstBytes = 16 * 1024;
  static constexpr int64_t kMaxBytes = 256 * 1024;
  // A probe that took less time is repeated at four times the size.
  static constexpr int64_t kLongEnoughNs = 20'000'000;
  // Time without a measurable frame before the first probe, and before a further one.
  static constexpr int64_t kFirstIdleNs = 2'000'000'000;
  static constexpr int64_t kIdleNs = 10'000'000'000;
  // Pause >= kPauseFactor * (duration of the last probe): probes take under 1 % of the link's time.
  static constexpr int64_t kPauseFactor = 100;
  // After this time a report counts as lost with its connection.
  static constexpr int64_t kReportDeadlineNs = 60'000'000'000;

  // The link was connected at `now_ns`.
  void Connected(int64_t now_ns);
  // A frame of at least kFirstBytes was sent.
  void Sent(int64_t now_ns);
  // The peer's measurement of our last probe came in.
  void Reported(int64_t now_ns, const FrameArrival& arrival);
  // Payload bytes of the probe to send now, if any; the probe counts as sent. queued_bytes: of
  // frames that wait to be sent.
  std::optional<int64_t> Due(int64_t now_ns, int64_t queued_bytes);

 private:
  int64_t quiet_since_ns_ = 0;
  int64_t idle_ns_ = kFirstIdleNs;
  int64_t next_bytes_ = kFirstBytes;
  int64_t sent_ns_ = 0;
  bool waiting_ = false;                  // whether a report waits
  bool large_frames_measurable_ = false;  // a probe of kFirstBytes lasted long enough
};

// A probe (zeros), and the receiver's report of it.
Frame MakeProbe(int64_t payload_bytes);
// `probe`: the number in the probe's header.
Frame MakeProbeReport(const FrameArrival& arrival, Sequence probe = Sequence(0));
// InvalidArgument: the payload is not the text "BYTES NANOSECONDS" with both above zero.
absl::StatusOr<FrameArrival> ParseProbeReport(absl::Span<const std::byte> payload);

}  // namespace runnel
