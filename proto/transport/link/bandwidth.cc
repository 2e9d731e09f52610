#include "proto/transport/link/bandwidth.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace runnel {
namespace {

// Pairs within this factor of each other agree.
constexpr double kAgree = 1.2;
// The least share of all pairs, by weight, that must agree; where none are the link's own, a
// seventh does by chance.
constexpr double kLeastSupport = 0.3;
// A transfer that took longer weighs no more for it.
constexpr double kFullWeightNs = 10e6;
// Pieces that follow each other within this part of the mean time between them come at once.
constexpr int64_t kAtOnceShare = 4;
// Three points on a line are no accident.
constexpr int kLeastPairs = 3;
// Transfers that each agree for themselves.
constexpr size_t kLeastAgreeing = 3;
// The rates of two windows that differ by more belong to different links.
constexpr double kChanged = 1.25;

// From one piece of a frame to a later one.
struct Pair {
  double bytes_per_ns = 0;
  double bytes = 0;
  double ns = 0;
  double weight = 0;
  size_t frame = 0;
  bool only = false;  // the frame came in two pieces
};

// Of one frame, with a rate.
struct Vote {
  double weight = 0, of_weight = 0;
  int pairs = 0;
  bool only = false;
};

struct Agreement {
  double bytes_per_ns = 0;
  double share = 0;   // of the weight
  size_t frames = 0;  // with as large a share of their own
};

bool Tells(const FrameArrival& arrival) {
  return arrival.bytes >= BandwidthMeter::kLeastBytes && arrival.ns > 0;
}

// The points of a frame that were read when they came, as far as the frame itself tells: one that
// is followed at once by another was waiting, unless it is itself the one that the reader waited
// for; so was the last if it came at once.
std::vector<ArrivalPoint> CaughtUp(const FrameArrival& arrival) {
  std::vector<ArrivalPoint> points = {{0, 0}};
  points.insert(points.end(), arrival.between.begin(), arrival.between.end());
  points.push_back({arrival.bytes, arrival.ns});
  const int64_t at_once_ns = arrival.ns / static_cast<int64_t>(points.size() - 1) / kAtOnceShare;
  std::vector<ArrivalPoint> caught_up;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t next = std::min(i + 1, points.size() - 1);
    if (points[next].ns - points[next - 1].ns >= at_once_ns) caught_up.push_back(points[i]);
  }
  return caught_up;
}

// A pair weighs by the mean of its bytes and its time: neither a burst, which has many bytes in no
// time, nor a pause outweighs what came in evenly; nor does one long transfer, which was paused
// more often, outweigh the others.
void AppendPairs(const FrameArrival& arrival, size_t frame, std::vector<Pair>& pairs) {
  const std::vector<ArrivalPoint> points = CaughtUp(arrival);
  const double pieces = static_cast<double>(arrival.between.size() + 2);
  const double scale = std::min(1.0, kFullWeightNs / static_cast<double>(arrival.ns));
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t j = i + 1; j < points.size(); ++j) {
      const double bytes = static_cast<double>(points[j].bytes - points[i].bytes);
      const double ns = static_cast<double>(points[j].ns - points[i].ns);
      if (bytes <= 0 || ns < static_cast<double>(BandwidthMeter::kResolutionNs)) continue;
      pairs.push_back({bytes / ns, bytes, ns, scale * std::sqrt(bytes * ns) / (pieces * pieces),
                       frame, arrival.between.empty()});
    }
  }
}

// Of the pairs with a rate within [least, most].
Agreement Within(absl::Span<const Pair> pairs, double least, double most) {
  double bytes = 0, ns = 0, weight = 0, all = 0;
  std::array<Vote, 2 * BandwidthMeter::kWindow + 1> votes = {};  // by place in the window
  for (const Pair& pair : pairs) {
    all += pair.weight;
    Vote& vote = votes[pair.frame];
    vote.of_weight += pair.weight;
    vote.only = pair.only;
    if (pair.bytes_per_ns < least || pair.bytes_per_ns > most) continue;
    bytes += pair.bytes;
    ns += pair.ns;
    weight += pair.weight;
    vote.weight += pair.weight;
    ++vote.pairs;
  }
  if (ns == 0) return {};
  const auto agreeing = std::count_if(votes.begin(), votes.end(), [](const Vote& vote) {
    return vote.weight >= kLeastSupport * vote.of_weight &&
           (vote.only ? vote.of_weight > 0 : vote.pairs >= kLeastPairs);
  });
  return {bytes / ns, weight / all, static_cast<size_t>(agreeing)};
}

// Where the pairs are densest. `pairs` ascend in rate.
Agreement Densest(absl::Span<const Pair> pairs) {
  double weight = 0, heaviest = 0;
  size_t first = 0, best_first = 0, best_last = 0;
  for (size_t last = 0; last < pairs.size(); ++last) {
    weight += pairs[last].weight;
    while (pairs[last].bytes_per_ns > kAgree * pairs[first].bytes_per_ns) {
      weight -= pairs[first++].weight;
    }
    if (weight <= heaviest) continue;
    heaviest = weight;
    best_first = first;
    best_last = last;
  }
  const double half = std::sqrt(kAgree);
  const double centre =
      Within(pairs, pairs[best_first].bytes_per_ns, pairs[best_last].bytes_per_ns).bytes_per_ns;
  return Within(pairs, centre / half, centre * half);
}

// Of the last `frames` of the window; nothing: no rate on which enough of them agree.
std::optional<Agreement> Agreed(const std::deque<FrameArrival>& window, size_t frames,
                                size_t least_agreeing) {
  std::vector<Pair> pairs;
  for (size_t i = window.size() - frames; i < window.size(); ++i) AppendPairs(window[i], i, pairs);
  if (pairs.empty()) return std::nullopt;
  std::sort(pairs.begin(), pairs.end(),
            [](const Pair& a, const Pair& b) { return a.bytes_per_ns < b.bytes_per_ns; });
  const Agreement agreement = Densest(pairs);
  if (agreement.share < kLeastSupport || agreement.frames < least_agreeing) return std::nullopt;
  return agreement;
}

// The youngest that may outvote older ones.
size_t LeastWindow(const std::deque<FrameArrival>& window) {
  size_t frames = 0;
  int64_t bytes = 0;
  while (frames < window.size() &&
         (frames < BandwidthMeter::kLeastWindow || bytes < BandwidthMeter::kLeastWindowBytes)) {
    ++frames;
    bytes += window[window.size() - frames].bytes;
  }
  return frames;
}

// 0: no agreement. A few transfers could agree by chance on what is not the link's rate, and
// outvote the older ones; `first`: nothing better is known, a single one will do.
double AgreedBytesPerNs(const std::deque<FrameArrival>& window, bool first) {
  std::optional<Agreement> best;
  for (size_t frames = LeastWindow(window);; frames = std::min(2 * frames, window.size())) {
    const std::optional<Agreement> longer =
        Agreed(window, frames, first && frames == window.size() ? 1 : kLeastAgreeing);
    if (best && longer &&
        std::max(best->bytes_per_ns, longer->bytes_per_ns) >
            kChanged * std::min(best->bytes_per_ns, longer->bytes_per_ns)) {
      break;
    }
    if (longer) best = longer;
    if (frames == window.size()) break;
  }
  return best ? best->bytes_per_ns : 0;
}

double MeanBytesPerNs(const std::deque<FrameArrival>& window) {
  double bytes = 0, ns = 0;
  for (const FrameArrival& arrival : window) {
    bytes += static_cast<double>(arrival.bytes);
    ns += static_cast<double>(arrival.ns);
  }
  return ns > 0 ? bytes / ns : 0;
}

}  // namespace

void BandwidthMeter::Add(const FrameArrival& arrival) {
  if (!Tells(arrival)) return;
  ++transfers_;
  const double bytes = static_cast<double>(arrival.bytes), ns = static_cast<double>(arrival.ns);
  const double expected_ns = bytes_per_ns_ > 0 ? bytes / bytes_per_ns_ : 0;
  window_.push_back(arrival);
  // However late its first piece was read, at the old rate it would have taken longer.
  faster_ = expected_ns > 2 * (ns + kLateNs) ? faster_ + 1 : 0;
  if (faster_ == kFaster) {
    window_.erase(window_.begin(), window_.end() - kFaster);
    agreed_ = false;
  }
  Trim();
  // One more of many hardly changes what they agree on, and costs as much as to ask all.
  if (agreed_ && transfers_ > static_cast<int64_t>(kWindow) && transfers_ % kRest != 0) return;
  const double agreed = AgreedBytesPerNs(window_, !agreed_);
  agreed_ = agreed_ || agreed > 0;
  if (agreed > 0) {
    bytes_per_ns_ = agreed;
  } else if (!agreed_) {
    bytes_per_ns_ = MeanBytesPerNs(window_);
  }
}

// Forgets what no longer counts: the oldest transfers of those with few bytes and of the others.
void BandwidthMeter::Trim() {
  size_t small = 0, large = 0;
  for (auto at = window_.end(); at != window_.begin();) {
    --at;
    size_t& count = at->bytes < kSmallBytes ? small : large;
    if (++count > kWindow) {
      window_.erase(at);
      return;
    }
  }
}

void ArrivalRecorder::Begin(int64_t now_ns) {
  arrival_ = FrameArrival();
  begin_ns_ = now_ns;
  pieces_ = 0;
  stride_ = 1;
}

void ArrivalRecorder::Add(int64_t now_ns, int64_t bytes) {
  // The last one so far is one between now.
  if (pieces_ > 0 && pieces_ % stride_ == 0)
    arrival_.between.push_back({arrival_.bytes, arrival_.ns});
  ++pieces_;
  arrival_.bytes += bytes;
  arrival_.ns = now_ns - begin_ns_;
  if (arrival_.between.size() < kMostPoints) return;
  std::vector<ArrivalPoint> kept;
  for (size_t i = 1; i < kMostPoints; i += 2) kept.push_back(arrival_.between[i]);
  arrival_.between = std::move(kept);
  stride_ *= 2;
}

FrameArrival ArrivalRecorder::Take() { return std::exchange(arrival_, FrameArrival()); }

int64_t MeasuredFrames::PieceBytes(const FrameHeader& header, int64_t now_ns) {
  const int64_t bytes = static_cast<int64_t>(header.payload_bytes);
  if (bytes < kLeastPayloadBytes) return 0;
  const bool probe = header.kind == FrameKind::kProbe;
  if (!probe && measured_ >= kFirst && now_ns - last_ns_ < kEveryNs) return 0;
  ++measured_;
  last_ns_ = now_ns;
  const int64_t pieces = std::min(bytes / kLeastPieceBytes, kMostPieces);
  return (bytes + pieces - 1) / pieces;
}

void BandwidthProbe::Connected(int64_t now_ns) {
  quiet_since_ns_ = now_ns;
  idle_ns_ = kFirstIdleNs;
  waiting_ = false;
}

void BandwidthProbe::Sent(int64_t now_ns) {
  if (!large_frames_tell_) return;
  quiet_since_ns_ = now_ns;
  idle_ns_ = kIdleNs;
}

void BandwidthProbe::Reported(int64_t now_ns, const FrameArrival& arrival) {
  if (!std::exchange(waiting_, false)) return;
  quiet_since_ns_ = now_ns;
  const bool too_short = arrival.ns < kLongEnoughNs && next_bytes_ < kMaxBytes;
  if (too_short) next_bytes_ = std::min(next_bytes_ * 4, kMaxBytes);
  if (arrival.ns > 8 * kLongEnoughNs) next_bytes_ = std::max(next_bytes_ / 4, kFirstBytes);
  large_frames_tell_ = arrival.ns >= kLongEnoughNs && next_bytes_ == kFirstBytes;
  idle_ns_ =
      too_short ? 0 : std::max(kIdleNs, std::min(arrival.ns, kReportDeadlineNs) * kPauseFactor);
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
