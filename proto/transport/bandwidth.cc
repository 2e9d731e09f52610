#include "proto/transport/bandwidth.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace runnel {
namespace {

double RateOf(const FrameArrival& arrival) {
  return static_cast<double>(arrival.bytes) * 1e9 / static_cast<double>(arrival.ns);
}

bool Tells(const FrameArrival& arrival) {
  return arrival.bytes >= BandwidthMeter::kLeastBytes && arrival.ns > 0;
}

}  // namespace

void BandwidthMeter::Add(const FrameArrival& arrival) {
  if (!Tells(arrival)) return;
  ++transfers_;
  window_.push_back(arrival);
  if (window_.size() > kWindow) window_.pop_front();
}

double BandwidthMeter::bytes_per_second() const {
  if (window_.empty()) return 0;
  std::vector<FrameArrival> sorted(window_.begin(), window_.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const FrameArrival& a, const FrameArrival& b) {
    return RateOf(a) < RateOf(b);
  });
  int64_t total = 0;
  for (const FrameArrival& arrival : sorted) total += arrival.bytes;
  int64_t below = 0;
  for (const FrameArrival& arrival : sorted) {
    below += arrival.bytes;
    if (2 * below >= total) return RateOf(arrival);
  }
  return RateOf(sorted.back());
}

void BandwidthProbe::Connected(int64_t now_ns) {
  quiet_since_ns_ = now_ns;
  idle_ns_ = kFirstIdleNs;
  waiting_ = false;
}

void BandwidthProbe::Sent(int64_t now_ns) {
  quiet_since_ns_ = now_ns;
  idle_ns_ = kIdleNs;
}

void BandwidthProbe::Reported(int64_t now_ns, const FrameArrival& arrival) {
  if (!std::exchange(waiting_, false)) return;
  quiet_since_ns_ = now_ns;
  const bool too_short = arrival.ns < kLongEnoughNs && next_bytes_ < kMaxBytes;
  if (too_short) next_bytes_ = std::min(next_bytes_ * 4, kMaxBytes);
  idle_ns_ = too_short ? 0 : kIdleNs;
}

std::optional<int64_t> BandwidthProbe::Due(int64_t now_ns, int64_t queued_bytes) {
  if (waiting_ && now_ns - sent_ns_ < kReportDeadlineNs) return std::nullopt;
  if (queued_bytes > 0 || now_ns - quiet_since_ns_ < idle_ns_) return std::nullopt;
  waiting_ = true;
  sent_ns_ = now_ns;
  return next_bytes_;
}

Frame MakeProbe(int64_t payload_bytes) {
  BufferPool pool;
  Frame frame;
  frame.header.kind = FrameKind::kProbe;
  frame.payload = pool.Allocate(static_cast<size_t>(payload_bytes));
  const absl::Span<std::byte> bytes = frame.payload.mutable_bytes();
  std::memset(bytes.data(), 0, bytes.size());
  SealFrame(frame);
  return frame;
}

Frame MakeProbeReport(const FrameArrival& arrival) {
  Frame frame;
  frame.header.kind = FrameKind::kProbeReport;
  const std::string text = absl::StrCat(arrival.bytes, " ", arrival.ns);
  frame.payload = Payload::CopyOf(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size()));
  SealFrame(frame);
  return frame;
}

absl::StatusOr<FrameArrival> ParseProbeReport(absl::Span<const std::byte> payload) {
  const std::string text(reinterpret_cast<const char*>(payload.data()), payload.size());
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  FrameArrival arrival;
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &arrival.bytes) ||
      !absl::SimpleAtoi(words[1], &arrival.ns) || arrival.bytes <= 0 || arrival.ns <= 0) {
    return absl::InvalidArgumentError("data link: a probe's report makes no sense");
  }
  return arrival;
}

}  // namespace runnel
