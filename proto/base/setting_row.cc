#include "proto/base/setting_row.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/utf8.h"

namespace runnel {
namespace {

absl::Status MustBe(absl::string_view rule) {
  return absl::InvalidArgumentError(absl::StrCat("must be ", rule));
}

}  // namespace

absl::Status CheckSetting(const SettingRange& range, double value) {
  if (!std::isfinite(value)) return MustBe("a finite number");
  if (value < range.min) return MustBe(absl::StrCat("at least ", range.min));
  if (range.below_max && value >= range.max) return MustBe(absl::StrCat("below ", range.max));
  if (value > range.max) {
    return MustBe(absl::StrCat("at most ", static_cast<int64_t>(range.max)));
  }
  return absl::OkStatus();
}

absl::Status CheckSetting(const SettingRange& range, int64_t value) {
  return CheckSetting(range, static_cast<double>(value));
}

absl::Status CheckSetting(const SettingRange& range, uint64_t value) {
  return CheckSetting(range, static_cast<double>(value));
}

absl::Status CheckSetting(const SettingRange& range, const std::string& value) {
  if (range.min >= 1 && value.empty()) return MustBe("given");
  // JSON would lose the other bytes, and a check-point would go on from another path.
  return IsUtf8(value) ? absl::OkStatus() : MustBe("UTF-8; rename what it names");
}

absl::Status CheckSetting(const SettingRange& range, const std::vector<int64_t>& values) {
  if (values.size() > kMaxSettingList) {
    return MustBe(absl::StrCat("a list of at most ", kMaxSettingList, " numbers"));
  }
  for (int64_t value : values) RUNNEL_RETURN_IF_ERROR(CheckSetting(range, value));
  return absl::OkStatus();
}

}  // namespace runnel
