#include "central/planning/rules/loss_indicator.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"

namespace runnel {
namespace {

constexpr int64_t kMostEverySteps = 1'000'000'000;

absl::Status ParseShare(absl::string_view name, absl::string_view text, double most,
                        double& share) {
  if (text.empty()) return absl::OkStatus();
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !(value > 0 && value <= most)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " '", text, "' is no number above 0 and up to ", most));
  }
  share = value;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LossIndicatorOptions> ParseLossIndicator(absl::string_view text) {
  LossIndicatorOptions options;
  if (text.empty()) return options;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  if (parts.size() != 3 && parts.size() != 4)
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not EPS,ALPHA,EVERY[,LATEST]"));
  RUNNEL_RETURN_IF_ERROR(ParseShare("EPS", parts[0], 1000, options.eps));
  RUNNEL_RETURN_IF_ERROR(ParseShare("ALPHA", parts[1], 1, options.alpha));
  if (parts.size() == 4) RUNNEL_RETURN_IF_ERROR(ParseShare("LATEST", parts[3], 1, options.latest));
  int64_t& every = options.every_steps;
  const bool is_count =
      absl::SimpleAtoi(parts[2], &every) && every >= 1 && every <= kMostEverySteps;
  if (parts[2].empty() || is_count) return options;
  return absl::InvalidArgumentError(absl::StrCat("EVERY '", parts[2], "' is no number of steps"));
}

double LossIndicator::scale() const {
  return scale_periods_ == 0 ? std::numeric_limits<double>::quiet_NaN()
                             : scale_sum_ / static_cast<double>(scale_periods_);
}

bool LossIndicator::Observe(double loss, double run_share) {
  distance_.reset();
  if (!std::isfinite(loss)) return false;
  if (scale_periods_ < kScalePeriods) {
    scale_sum_ += loss;
    ++scale_periods_;
  }
  if (turns_ == options_.most_turns) return false;
  losses_.push_back(loss);
  if (losses_.size() > kPeriods) losses_.erase(losses_.begin());
  if (losses_.size() == kPeriods) {
    double largest = 0;
    for (const double before : losses_) largest = std::max(largest, std::abs(before - loss));
    distance_ = largest / scale();
  }
  const bool stands_still = distance_.has_value() && *distance_ <= eps_;
  constexpr double kSlack = 1e-9;  // products of decimal shares
  const double due = options_.latest * static_cast<double>(turns_ + 1) - kSlack;
  const bool is_due =
      options_.latest > 0 && run_share * static_cast<double>(options_.most_turns) >= due;
  if (!stands_still && !is_due) return false;
  losses_.clear();
  if (++turns_ < options_.most_turns) eps_ *= options_.alpha;
  return true;
}

std::string LossIndicator::State() const {
  return DumpJson(Json{{"eps", eps_},
                       {"losses", losses_},
                       {"scale_sum", scale_sum_},
                       {"scale_periods", scale_periods_},
                       {"turns", turns_}});
}

absl::Status LossIndicator::Restore(absl::string_view state) {
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(state));
  JsonObject object(json, "indicator");
  LossIndicator read(options_);
  object.Read("eps", read.eps_)
      .Read("losses", read.losses_)
      .Read("scale_sum", read.scale_sum_)
      .Read("scale_periods", read.scale_periods_)
      .Read("turns", read.turns_);
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  if (read.losses_.size() > kPeriods || read.turns_ < 0 || read.turns_ > options_.most_turns)
    return absl::InvalidArgumentError("indicator: no such state");
  *this = read;
  return absl::OkStatus();
}

}  // namespace runnel
