#include "proto/transport/link/redial_policy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr int64_t kFirstDelayNs = int64_t{20} * 1000 * 1000;
constexpr int64_t kLastDelayNs = int64_t{1000} * 1000 * 1000;
constexpr int64_t kNsPerSecond = 1'000'000'000;

}  // namespace

void RedialPolicy::Heard() {
  heard_ = true;
  delay_ns_ = 0;
}

int64_t RedialPolicy::NextDelayNs() {
  delay_ns_ = std::clamp(delay_ns_ * 2, kFirstDelayNs, kLastDelayNs);
  return delay_ns_;
}

absl::Status RedialPolicy::CheckDamage(const absl::Status& status, int64_t delivered) {
  damaged_ = delivered == delivered_at_damage_ ? damaged_ + 1 : 1;
  delivered_at_damage_ = delivered;
  if (damaged_ <= limits_.damaged_connections) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(status.message(), ", on ", damaged_, " connections in a row"));
}

absl::Status RedialPolicy::Ended(int64_t now_ns, const absl::Status& status, int64_t delivered) {
  const bool heard = std::exchange(heard_, false);
  const std::string refusal = std::exchange(refusal_, {});
  // The same frame would fail again on the same device.
  if (absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status)) return status;
  // Lost frames come again: the session resends them on the next connection.
  const bool damaged = absl::IsDataLoss(status);
  if (damaged) RUNNEL_RETURN_IF_ERROR(CheckDamage(status, delivered));
  if (!dials_) return absl::OkStatus();
  // A large frame on a slow link may have been on its way for longer than we wait: what counts is
  // for how long there has been no connection that worked.
  if (heard || damaged) {
    lost_since_ns_ = now_ns;
    refused_since_ns_.reset();
    return absl::OkStatus();
  }
  // An end in order before a greeting comes from a peer that lives.
  if (status.ok() || !refusal.empty()) {
    lost_since_ns_ = now_ns;
    if (!refused_since_ns_.has_value()) refused_since_ns_ = now_ns;
    if (now_ns - *refused_since_ns_ <= limits_.refused_ns) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat("the peer has refused the link for ", limits_.refused_ns / kNsPerSecond,
                     " s: it ", refusal.empty() ? "closed it before a greeting" : refusal));
  }
  return now_ns - lost_since_ns_ > limits_.lost_ns ? status : absl::OkStatus();
}

}  // namespace runnel
