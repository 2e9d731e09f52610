#include "worker/limits/device_limits.h"

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

// As much is lost from the count when the worker is killed.
constexpr int64_t kKeptEveryBytes = 1'000'000;

}  // namespace

DeviceLimits::DeviceLimits(LimitSettings settings, Parts parts)
    : settings_(std::move(settings)), parts_(std::move(parts)), held_(LimitRows().size()) {
  if (parts_.data_file.empty()) return;
  std::ifstream file(parts_.data_file);
  if (!(file >> day_ >> data_bytes_)) data_bytes_ = 0;
  kept_bytes_ = data_bytes_;
}

absl::Status DeviceLimits::Check() const {
  if (!settings_.most_celsius.has_value() || parts_.read_device().celsius.has_value())
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      "--max-celsius: the kernel shows no temperature of this device (/sys/class/thermal)");
}

void DeviceLimits::CountData(const std::tm& local) {
  if (!settings_.most_data_bytes_a_day.has_value()) return;
  const int64_t passed = parts_.take_data_bytes();
  const int today = (1900 + local.tm_year) * 1000 + local.tm_yday;
  const bool is_new_day = day_ != today;
  if (is_new_day) data_bytes_ = 0;
  day_ = today;
  data_bytes_ += passed;
  if (parts_.data_file.empty() || (!is_new_day && data_bytes_ < kept_bytes_ + kKeptEveryBytes))
    return;
  kept_bytes_ = data_bytes_;
  // A count that cannot be kept still holds until the worker ends.
  WriteFileAtomically(parts_.data_file, {absl::StrCat(day_, " ", data_bytes_, "\n")}).IgnoreError();
}

std::string DeviceLimits::Reason() {
  const std::time_t now_s = parts_.now_s();
  std::tm local = {};
  localtime_r(&now_s, &local);
  CountData(local);
  const LimitInputs inputs = {parts_.read_device(), local.tm_hour * 60 + local.tm_min, data_bytes_};
  std::vector<std::string> reasons;
  const absl::Span<const LimitRow> rows = LimitRows();
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string reason = rows[i].reason(settings_, inputs, held_[i]);
    held_[i] = !reason.empty();
    if (held_[i]) reasons.push_back(absl::StrCat(reason, " (", rows[i].flag, ")"));
  }
  return absl::StrJoin(reasons, "; ");
}

std::string DeviceLimits::Text() const {
  std::vector<std::string> texts;
  for (const LimitRow& row : LimitRows()) {
    std::string text = row.text(settings_);
    if (!text.empty()) texts.push_back(std::move(text));
  }
  return absl::StrJoin(texts, ", ");
}

}  // namespace runnel
