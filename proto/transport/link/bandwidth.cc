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

// Two pairs agree if their rates differ by at most this factor.
constexpr double kAgree = 1.2;
// Least share of all pairs, by weight, that must agree. Where no pair has the link's rate, a
// seventh of the pairs agrees by chance.
constexpr double kLeastSupport = 0.3;
// The weight of a transfer does not grow beyond this duration.
constexpr double kFullWeightNs = 10e6;
// A piece belongs to a burst if it was read within 1 / kBurstShare of the mean time between pieces.
constexpr int64_t kBurstShare = 4;
// A transfer agrees only with at least this many of its pairs: three points on one line.
constexpr int kLeastPairs = 3;
// Transfers that must agree.
constexpr size_t kLeastAgreeing = 3;
// Rates of two windows that differ by more than this factor: the link changed in between.
constexpr double kChanged = 1.25;

// Two pieces of one frame, and the rate between them.
struct Pair {
  double bytes_per_ns = 0;
  double bytes = 0;
  double ns = 0;
  double weight = 0;
  size_t frame = 0;
  bool only = false;  // the frame's only pair: it came in two pieces
};

// Agreement of one frame with a rate.
struct Vote {
  double weight = 0;      // weight of the frame's pairs that agree
  double all_weight = 0;  // weight of all pairs of the frame
  int pairs = 0;          // number of pairs that agree
  bool only = false;
};

struct Agreement {
  double bytes_per_ns = 0;
  double share = 0;   // share of the weight of all pairs
  size_t frames = 0;  // frames of whose own weight at least kLeastSupport agrees
};

bool IsMeasurable(const FrameArrival& arrival) {
  return arrival.bytes >= BandwidthMeter::kLeastBytes && arrival.ns > 0;
}

// The points of a frame that were read on arrival, as far as one frame shows it. In a burst all
// points but the last were waiting for the reader:
//   read  1   2 . . . . 345   6     keeps 1, 2, 5, 6
// If the frame ends with a burst, its last point was waiting too.
std::vector<ArrivalPoint> PointsReadOnArrival(const FrameArrival& arrival) {
  std::vector<ArrivalPoint> points = {{0, 0}};
  points.insert(points.end(), arrival.between.begin(), arrival.between.end());
  points.push_back({arrival.bytes, arrival.ns});
  const int64_t burst_ns = arrival.ns / static_cast<int64_t>(points.size() - 1) / kBurstShare;
  std::vector<ArrivalPoint> kept;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t next = std::min(i + 1, points.size() - 1);
    if (points[next].ns - points[next - 1].ns >= burst_ns) kept.push_back(points[i]);
  }
  return kept;
}

// Appends all pairs of a frame's points.
//   weight = sqrt(bytes * time) * min(1, kFullWeightNs / frame's time) / pieces^2
// The geometric mean keeps a burst (many bytes, no time) and a pause (no bytes, much time) light;
// the second factor keeps one long transfer, which was interrupted more often, from outweighing
// others.
void AppendPairs(const FrameArrival& arrival, size_t frame, std::vector<Pair>& pairs) {
  const std::vector<ArrivalPoint> points = PointsReadOnArrival(arrival);
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

// The agreement of the pairs whose rate is within [least, most].
Agreement AgreementWithin(absl::Span<const Pair> pairs, double least, double most) {
  double bytes = 0, ns = 0, weight = 0, all = 0;
  std::array<Vote, 2 * BandwidthMeter::kWindow + 1> votes = {};  // by place in the window
  for (const Pair& pair : pairs) {
    all += pair.weight;
    Vote& vote = votes[pair.frame];
    vote.all_weight += pair.weight;
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
    return vote.weight >= kLeastSupport * vote.all_weight &&
           (vote.only ? vote.all_weight > 0 : vote.pairs >= kLeastPairs);
  });
  return {bytes / ns, weight / all, static_cast<size_t>(agreeing)};
}

// The heaviest set of pairs whose rates lie within a factor of kAgree. `pairs` ascend in rate.
Agreement DensestAgreement(absl::Span<const Pair> pairs) {
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
      AgreementWithin(pairs, pairs[best_first].bytes_per_ns, pairs[best_last].bytes_per_ns)
          .bytes_per_ns;
  return AgreementWithin(pairs, centre / half, centre * half);
}

// The agreement of the last `frames` transfers of the window; empty if too few of them agree.
std::optional<Agreement> FindAgreement(const std::deque<FrameArrival>& window, size_t frames,
                                       size_t least_agreeing) {
  std::vector<Pair> pairs;
  for (size_t i = window.size() - frames; i < window.size(); ++i) AppendPairs(window[i], i, pairs);
  if (pairs.empty()) return std::nullopt;
  std::sort(pairs.begin(), pairs.end(),
            [](const Pair& a, const Pair& b) { return a.bytes_per_ns < b.bytes_per_ns; });
  const Agreement agreement = DensestAgreement(pairs);
  if (agreement.share < kLeastSupport || agreement.frames < least_agreeing) return std::nullopt;
  return agreement;
}

// Number of newest transfers that may outvote all older ones.
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

// The rate of the longest run of newest transfers that agrees with the newest ones; 0: no
// agreement. kLeastAgreeing transfers must agree, since fewer could outvote the older ones by
// chance. `first`: there was no agreement before, so a single transfer is enough.
double AgreedBytesPerNs(const std::deque<FrameArrival>& window, bool first) {
  std::optional<Agreement> best;
  for (size_t frames = LeastWindow(window);; frames = std::min(2 * frames, window.size())) {
    const std::optional<Agreement> longer =
        FindAgreement(window, frames, first && frames == window.size() ? 1 : kLeastAgreeing);
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
  if (!IsMeasurable(arrival)) return;
  ++transfers_;
  AddLongTransfer(arrival);
  const double bytes = static_cast<double>(arrival.bytes), ns = static_cast<double>(arrival.ns);
  const double expected_ns = bytes_per_ns_ > 0 ? bytes / bytes_per_ns_ : 0;
  window_.push_back(arrival);
  // Faster than the old rate allows, even if the first piece was read kLateNs after its arrival.
  faster_ = expected_ns > 2 * (ns + kLateNs) ? faster_ + 1 : 0;
  if (faster_ == kFasterTransfers) {
    window_.erase(window_.begin(), window_.end() - kFasterTransfers);
    agreed_ = false;
  }
  Trim();
  // One more transfer changes a full window little, and each estimate costs the same.
  if (agreed_ && transfers_ > static_cast<int64_t>(kWindow) && transfers_ % kEstimateEvery != 0)
    return;
  const double agreed = AgreedBytesPerNs(window_, !agreed_);
  agreed_ = agreed_ || agreed > 0;
  if (agreed > 0) {
    bytes_per_ns_ = agreed;
  } else if (!agreed_) {
    bytes_per_ns_ = MeanBytesPerNs(window_);
  }
}

// A transfer tells nothing if it has no point behind the burst, or hardly anything behind that
// point.
void BandwidthMeter::AddLongTransfer(const FrameArrival& arrival) {
  const auto behind =
      std::find_if(arrival.between.begin(), arrival.between.end(),
                   [](const ArrivalPoint& point) { return point.bytes >= kBurstBytes; });
  if (behind == arrival.between.end()) return;
  const int64_t bytes = arrival.bytes - behind->bytes;
  const int64_t ns = arrival.ns - behind->ns;
  if (bytes < 2 * kLeastBytes || ns < kResolutionNs) return;
  behind_burst_.push_back(static_cast<double>(bytes) / static_cast<double>(ns));
  if (behind_burst_.size() > kLongTransfers) behind_burst_.pop_front();
}

// A reader that is held up makes a transfer look slow, hardly ever fast: the fastest counts.
double BandwidthMeter::bytes_per_second() const {
  const auto fastest = std::max_element(behind_burst_.begin(), behind_burst_.end());
  const bool is_burst = fastest != behind_burst_.end() && bytes_per_ns_ > kBurstFactor * *fastest;
  return (is_burst ? *fastest : bytes_per_ns_) * 1e9;
}

// Drops the oldest transfers beyond kWindow, of the small ones and of the large ones.
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
  // The end of the piece before is now a point between the first and the last one.
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

FrameArrival ArrivalRecorder::Finish() { return std::exchange(arrival_, FrameArrival()); }

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
  if (!large_frames_measurable_) return;
  quiet_since_ns_ = now_ns;
  idle_ns_ = kIdleNs;
}

void BandwidthProbe::Reported(int64_t now_ns, const FrameArrival& arrival) {
  if (!std::exchange(waiting_, false)) return;
  quiet_since_ns_ = now_ns;
  const bool too_short = arrival.ns < kLongEnoughNs && next_bytes_ < kMaxBytes;
  if (too_short) next_bytes_ = std::min(next_bytes_ * 4, kMaxBytes);
  if (arrival.ns > 8 * kLongEnoughNs) next_bytes_ = std::max(next_bytes_ / 4, kFirstBytes);
  large_frames_measurable_ = arrival.ns >= kLongEnoughNs && next_bytes_ == kFirstBytes;
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

Frame MakeProbeReport(const FrameArrival& arrival, Sequence probe) {
  Frame frame;
  frame.header.sequence = probe;
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
