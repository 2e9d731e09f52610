#include "proto/transport/link/pacer.h"

#include <algorithm>
#include <cmath>

namespace runnel {
namespace {

constexpr double kPieceNs = 2e6;
constexpr int64_t kSmallestPieceBytes = 4096;

}  // namespace

Pacer::Pacer(const LinkShaping& shaping) {
  if (shaping.megabits_per_second > 0) ns_per_byte_ = 8000.0 / shaping.megabits_per_second;
  if (shaping.delay_ms > 0) delay_ns_ = std::llround(shaping.delay_ms * 1e6);
}

Pacer::Times Pacer::Schedule(int64_t ready_ns, int64_t bytes) {
  if (ready_ns >= free_ns_) {
    busy_since_ns_ = ready_ns;
    busy_bytes_ = 0;
  }
  busy_bytes_ += bytes;
  const int64_t begin_ns = std::max(ready_ns, free_ns_);
  free_ns_ = busy_since_ns_ +
             static_cast<int64_t>(std::ceil(static_cast<double>(busy_bytes_) * ns_per_byte_));
  return {begin_ns, free_ns_, free_ns_ + delay_ns_};
}

int64_t Pacer::PieceBytes(int64_t limit) const {
  if (ns_per_byte_ <= 0) return limit;
  const double piece = std::min(kPieceNs / ns_per_byte_, static_cast<double>(limit));
  return std::min(limit, std::max(kSmallestPieceBytes, static_cast<int64_t>(piece)));
}

}  // namespace runnel
