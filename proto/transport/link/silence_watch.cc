#include "proto/transport/link/silence_watch.h"

#include <algorithm>
#include <utility>

namespace runnel {

int64_t SilenceWatch::LimitNs() const { return std::clamp(rhythm_.limit_ns(), kLeastNs, kMostNs); }

std::optional<int64_t> SilenceWatch::EndSilence(int64_t now_ns) {
  const int64_t silence_ns = now_ns - std::exchange(heard_ns_, now_ns);
  if (!std::exchange(is_silent_, false)) return std::nullopt;
  return silence_ns;
}

std::optional<int64_t> SilenceWatch::Connect(int64_t now_ns) {
  stands_ = true;
  rhythm_.Restart(now_ns);
  return EndSilence(now_ns);
}

std::optional<int64_t> SilenceWatch::Hear(int64_t now_ns) {
  // Silences too: one changes nothing, and a link that has many is one where things come rarely.
  rhythm_.Add(now_ns);
  return EndSilence(now_ns);
}

SilenceWatch::Finding SilenceWatch::Look(int64_t now_ns, int64_t allowance_ns) {
  const int64_t passed_ns = now_ns - std::exchange(looked_ns_, now_ns);
  if (passed_ns != now_ns && passed_ns > kOwnStallNs) {
    heard_ns_ = std::min(heard_ns_ + passed_ns, now_ns);
    rhythm_.Restart(heard_ns_);
  }
  Finding finding{false, false, now_ns - heard_ns_, rhythm_.median_ns()};
  const int64_t strange_ns = finding.silence_ns - allowance_ns;
  if (!rhythm_.is_known() || strange_ns <= LimitNs()) return finding;
  finding.is_new = !std::exchange(is_silent_, true);
  const auto dead_ns = static_cast<int64_t>(static_cast<double>(LimitNs()) * kDeadFactor);
  if (strange_ns > dead_ns) finding.is_dead = std::exchange(stands_, false);
  return finding;
}

}  // namespace runnel
